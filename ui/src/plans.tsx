// What a plan of the Kafka fleet does to disks, and the plans that wait for somebody's approval.

import { Button, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { usePolled } from "./data";
import type { Rights } from "./messages";
import { Fresh, LongTable, Section } from "./parts";
import { keyOf, OneQuestion, Questions, resultOf } from "./questions";
import { Share, Warning } from "./share";
import { bytes, count, duration } from "./words";

interface PlannedDisks {
  digest: string;
  kind: string;
  why: string[];
  partitions: number;
  stages: number;
  moved_bytes: number;
  throttle_bytes_per_s: number;
  expected_s: number | null;
  disks: { broker: number; path: string; total_bytes: number | null; before: number | null; after: number | null }[];
}

// What a plan does to disks is asked for when somebody wants to see it: a plan of a large fleet is large.
export function Before({ digest }: { digest: string }) {
  const [open, setOpen] = useState(false);
  return (
    <Stack align="flex-start" gap={2}>
      <Button onClick={() => setOpen(!open)} size="xs" variant="outline">
        {open ? "Hide disks before and after" : "Show disks before and after"}
      </Button>
      {open ? <Planned digest={digest} /> : null}
    </Stack>
  );
}

function Planned({ digest }: { digest: string }) {
  const polled = usePolled<PlannedDisks>(`rtolap/page/fleet/plans/${digest}`, 3_600_000);
  return (
    <Fresh of={polled}>
      {(data) => (
        <Stack gap={2}>
          <Text>
            {data.kind}: {count(data.partitions)} partitions, {bytes(data.moved_bytes)} in {data.stages === 1 ? "one stage" : `${count(data.stages)} stages`},{" "}
            {data.expected_s === null ? "without end" : duration(data.expected_s * 1000)} under {bytes(data.throttle_bytes_per_s)} a second.
          </Text>
          {data.why.map((line) => (
            <Text key={line}>{line}</Text>
          ))}
          <LongTable
            cells={(row) => {
              const each = data.disks[row]!;
              return [
                each.broker,
                each.path,
                bytes(each.total_bytes),
                <Share key="before" of={each.before} />,
                <Share key="after" of={each.after} />,
              ];
            }}
            columns={["Broker", "Directory", "Size", "Used before", "Used afterwards"]}
            heightPx={300}
            idOf={(row) => `${data.disks[row]!.broker} ${data.disks[row]!.path}`}
            label="Disks before and after the plan"
            rows={data.disks.length}
          />
        </Stack>
      )}
    </Fresh>
  );
}

// Plans of the fleet that wait for a person.
export function Approvals({ rights }: { rights: Rights | null }) {
  return (
    <Section title="Waiting for an approval">
      <Questions dags="rtolap_fleet_" rights={rights}>
        {(questions, answers) => (
          <Stack gap={4}>
            {questions.length === 0 ? <Text>Nothing waits for an approval.</Text> : null}
            {questions.map((each) => (
              <OneQuestion answers={answers(each)} each={each} key={keyOf(each)}>
                <PlanOf dagId={each.task_instance.dag_id} runId={each.task_instance.dag_run_id} />
              </OneQuestion>
            ))}
          </Stack>
        )}
      </Questions>
    </Section>
  );
}

// The plan of a question is the result of the task before it; a repair has none.
function PlanOf({ dagId, runId }: { dagId: string; runId: string }) {
  const [digest, setDigest] = useState("");
  const [problem, setProblem] = useState("");
  async function find() {
    try {
      const value = await resultOf<{ digest?: unknown }>(dagId, runId, "plan");
      if (typeof value.digest === "string") setDigest(value.digest);
      else setProblem("The run has no plan.");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  }
  if (digest) return <Planned digest={digest} />;
  if (dagId === "rtolap_fleet_repair") return null;
  return (
    <Stack align="flex-start" gap={2}>
      <Button onClick={() => void find()} size="xs" variant="outline">
        Show disks before and after
      </Button>
      {problem ? <Warning text={problem} /> : null}
    </Stack>
  );
}
