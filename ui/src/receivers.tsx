import { Stack, Text } from "@chakra-ui/react";

import { usePolled } from "./data";
import type { Moving, OwnedPartition, Receiver, Receivers } from "./messages";
import { Fresh, LongTable, Section, State } from "./parts";
import { behind, bytes, count, instant } from "./words";

export function ReceiversView({ name }: { name: string }) {
  const polled = usePolled<Receivers>("rtolap/page/receivers", 3000);
  return (
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
                label="Partitions of receivers"
                rows={owned.length}
              />
            </Section>
          </Stack>
        );
      }}
    </Fresh>
  );
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
  const sets = [...new Set([...Object.keys(move.before), ...Object.keys(move.after)])].sort();
  return (
    <Stack gap={2} mb={3}>
      <Text fontWeight="semibold">{move.cube}</Text>
      <LongTable
        cells={(row) => {
          const name = sets[row]!;
          return [name, (move.before[name] ?? []).join(", "), (move.after[name] ?? []).join(", ")];
        }}
        columns={["Replica set", "Partitions now", "Partitions afterwards"]}
        label={`Move of ${move.cube}`}
        rows={sets.length}
      />
      {move.waits.map((line) => (
        <Text key={line}>{line}</Text>
      ))}
    </Stack>
  );
}
