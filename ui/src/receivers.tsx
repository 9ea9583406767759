import { Stack, Text } from "@chakra-ui/react";
import { useEffect, useState } from "react";

import { usePolled } from "./data";
import type { Moving, OwnedPartition, Receiver, Receivers, Rights } from "./messages";
import { Fresh, LongTable, Section, State } from "./parts";
import { keyOf, OneQuestion, Questions, resultOf } from "./questions";
import { Warning } from "./share";
import { behind, bytes, count, instant } from "./words";

const MOVES = "rtolap_move_partitions";

interface PlannedMove {
  before: Record<string, number[]>;
  after: Record<string, number[]>;
  load: { before: SetLoad[]; after: SetLoad[] } | null;
}

interface SetLoad {
  replica_set: string;
  load_percent: number;
}

export function ReceiversView({ name, rights }: { name: string; rights: Rights | null }) {
  const polled = usePolled<Receivers>("rtolap/page/receivers", 3000);
  return (
    <Stack gap={6}>
      <Section title="Moves that wait for an answer">
        <Questions dags={MOVES} rights={rights}>
          {(questions, answers) => (
            <Stack gap={4}>
              {questions.length === 0 ? <Text>No move waits for a person.</Text> : null}
              {questions.map((each) => (
                <OneQuestion answers={answers(each)} each={each} key={keyOf(each)}>
                  <Plan runId={each.task_instance.dag_run_id} />
                </OneQuestion>
              ))}
            </Stack>
          )}
        </Questions>
      </Section>
      <Fresh of={polled}>
      {(data) => {
        const receivers = data.receivers.filter((each) => !name || each.name === name);
        const owned = receivers.flatMap((receiver) => receiver.partitions.map((each) => ({ receiver, each })));
        return (
          <Stack gap={6}>
            <Section title="Receivers">
              {name ? <Text>Only {name} is shown.</Text> : null}
              <LongTable
                cells={(row) => ofReceiver(receivers[row]!, data.now_ms)}
                columns={["Replica set", "Receiver", "Health", "Leads", "Heard of", "Address", "Cubes", "Detail"]}
                idOf={(row) => receivers[row]!.name}
                label="Receivers"
                rows={receivers.length}
              />
            </Section>
            <Section title="Moves that run">
              {data.moves.length === 0 ? <Text>No partitions move.</Text> : null}
              {data.moves.map((move) => (
                <Move key={move.cube} move={move} />
              ))}
            </Section>
            <Section title="Partitions">
              <LongTable
                cells={(row) => ofPartition(owned[row]!.receiver, owned[row]!.each)}
                columns={["Cube", "Partition", "Receiver", "Position", "Behind", "Events/s", "Held", "Watermark"]}
                idOf={(row) => `${owned[row]!.each.cube} ${owned[row]!.each.partition} ${owned[row]!.receiver.name}`}
                label="Partitions of receivers"
                rows={owned.length}
              />
            </Section>
          </Stack>
        );
      }}
      </Fresh>
    </Stack>
  );
}

// The plan is the result of the first task of the run that asks.
function Plan({ runId }: { runId: string }) {
  const [plan, setPlan] = useState<PlannedMove | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let shown = true;
    resultOf<PlannedMove>(MOVES, runId, "plan").then(
      (found) => shown && setPlan(found),
      (error: unknown) => shown && setProblem(error instanceof Error ? error.message : String(error)),
    );
    return () => {
      shown = false;
    };
  }, [runId]);
  if (problem) return <Warning text={`The plan is not known: ${problem}`} />;
  if (plan === null) return <Text>Loading …</Text>;
  const load = (of: "before" | "after", set: string) => plan.load?.[of].find((each) => each.replica_set === set);
  const percent = (each: SetLoad | undefined) => (each === undefined ? "unknown" : `${each.load_percent} %`);
  const sets = setsOf(plan);
  return (
    <LongTable
      cells={(row) => {
        const set = sets[row]!;
        return [
          set,
          (plan.before[set] ?? []).join(", "),
          (plan.after[set] ?? []).join(", "),
          ...(plan.load ? [percent(load("before", set)), percent(load("after", set))] : []),
        ];
      }}
      columns={["Replica set", "Partitions before", "Partitions afterwards", ...(plan.load ? ["Load before", "Load afterwards"] : [])]}
      heightPx={200}
      idOf={(row) => sets[row]!}
      label="Partitions before and after the move"
      rows={sets.length}
    />
  );
}

function setsOf(move: { before: Record<string, number[]>; after: Record<string, number[]> }): string[] {
  return [...new Set([...Object.keys(move.before), ...Object.keys(move.after)])].sort();
}

function ofReceiver(each: Receiver, nowMs: number) {
  return [
    each.draining ? `${each.replica_set} (draining)` : each.replica_set,
    each.name,
    <State key="health" of={each.health} />,
    each.leads ? "leads" : "",
    behind(nowMs, each.seen_ms),
    each.address,
    Object.entries(each.cubes)
      .map(([cube, state]) => `${cube} ${state}`)
      .join(", "),
    each.reason,
  ];
}

function ofPartition(receiver: Receiver, each: OwnedPartition) {
  return [
    each.cube,
    each.partition,
    receiver.name,
    count(each.position),
    each.log_end === null ? "unknown" : count(Math.max(0, each.log_end - each.position)),
    count(each.records_per_s),
    bytes(each.held_bytes),
    instant(each.watermark_ms),
  ];
}

function Move({ move }: { move: Moving }) {
  const sets = setsOf(move);
  return (
    <Stack gap={2} mb={3}>
      <Text fontWeight="semibold">{move.cube}</Text>
      <LongTable
        cells={(row) => {
          const name = sets[row]!;
          return [name, (move.before[name] ?? []).join(", "), (move.after[name] ?? []).join(", ")];
        }}
        columns={["Replica set", "Partitions now", "Partitions afterwards"]}
        idOf={(row) => sets[row]!}
        label={`Move of ${move.cube}`}
        rows={sets.length}
      />
      {move.waits.map((line) => (
        <Text key={line}>{line}</Text>
      ))}
    </Stack>
  );
}
