import { Button, Flex, Heading, Input, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { DateTime, RunDag } from "./actions";
import { BuildsOf, RefusedOf, WatermarkOf } from "./cube_parts";
import { usePolled } from "./data";
import type { CubeList, CubePage, Rights } from "./messages";
import { Figure, Fresh, LongTable, Problems, Section, State } from "./parts";
import { Timeline } from "./timeline";
import { behind, count, duration, instant } from "./words";

export function CubesView({
  cube,
  choose,
  rights,
}: {
  cube: string;
  choose: (cube: string) => void;
  rights: Rights | null;
}) {
  return cube ? <OneCube back={() => choose("")} cube={cube} rights={rights} /> : <AllCubes choose={choose} />;
}

function AllCubes({ choose }: { choose: (cube: string) => void }) {
  const polled = usePolled<CubeList>("rtolap/page/cubes", 5000);
  const [wanted, setWanted] = useState("");
  return (
    <Fresh of={polled}>
      {(data) => {
        const shown = data.cubes.filter((each) => each.name.includes(wanted));
        return (
          <Stack gap={3}>
            <Input
              aria-label="Find a cube by its name"
              maxW="24rem"
              onChange={(event) => setWanted(event.target.value)}
              placeholder="Find a cube by its name"
              value={wanted}
            />
            <LongTable
              cells={(row) => {
                const each = shown[row]!;
                return [
                  <Button height="auto" key="name" minH="0" onClick={() => choose(each.name)} px={0} size="xs" variant="plain">
                    {each.name}
                  </Button>,
                  <State key="state" of={each.state} />,
                  behind(data.now_ms, each.low_watermark_ms),
                  count(each.lag_records),
                  count(each.records_per_s),
                  Object.entries(each.segments)
                    .sort()
                    .map(([state, segments]) => `${segments} ${state}`)
                    .join(", "),
                  each.problems ? count(each.problems) : "",
                ];
              }}
              columns={["Cube", "State", "Low watermark", "Behind", "Events/s", "Segments", "Problems"]}
              heightPx={600}
              label="Cubes"
              rows={shown.length}
            />
          </Stack>
        );
      }}
    </Fresh>
  );
}

function OneCube({ cube, back, rights }: { cube: string; back: () => void; rights: Rights | null }) {
  const polled = usePolled<CubePage>(`rtolap/page/cubes/${encodeURIComponent(cube)}`, 5000);
  return (
    <Stack gap={4}>
      <Flex align="center" gap={3} wrap="wrap">
        <Button onClick={back} size="sm" variant="ghost">
          ← All cubes
        </Button>
        <Heading as="h2" overflowWrap="anywhere" size="lg">
          {cube}
        </Heading>
        <Actions cube={cube} rights={rights} />
      </Flex>
      <Fresh of={polled}>{(data) => <Details data={data} />}</Fresh>
    </Stack>
  );
}

function startOfDay(day: string, daysLater: number): string {
  return new Date(Date.parse(`${day}T00:00:00Z`) + daysLater * 86_400_000).toISOString();
}

function Actions({ cube, rights }: { cube: string; rights: Rights | null }) {
  const [day, setDay] = useState("");
  const [before, setBefore] = useState("");
  return (
    <>
      <RunDag
        action={{
          dagId: "rtolap_backfill",
          label: "Rebuild a day",
          title: `Build the READY segments of a day of ${cube} again`,
          explanation: "They answer from their present version until the new one is READY.",
          conf: () => ({ cube, from: startOfDay(day, 0), to: startOfDay(day, 1) }),
          disabled: !day,
          children: (
            <Input aria-label="Day (UTC)" onChange={(event) => setDay(event.target.value)} type="date" value={day} />
          ),
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId: "rtolap_move_partitions",
          label: "Plan a move",
          title: `Plan a move of the partitions of ${cube}`,
          explanation: "The plan levels the load. Nothing moves before a person has approved it in Airflow.",
          conf: () => ({ cube, by: "load", over: null }),
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId: "rtolap_purge",
          label: "Purge",
          title: `Drop old segments of ${cube} for ever`,
          explanation: "Segments that end at or before this instant are dropped. This cannot be undone.",
          confirm: cube,
          conf: () => ({ cube, before: `${before}${before.length === 16 ? ":00" : ""}+00:00` }),
          disabled: !before,
          children: <DateTime change={setBefore} label="Ending at or before" value={before} />,
        }}
        rights={rights}
      />
    </>
  );
}

function Details({ data }: { data: CubePage }) {
  const { cube, segments } = data;
  const held = data.partitions.find((each) => !each.idle);
  return (
    <Stack gap={6}>
      <Flex gap={3} wrap="wrap">
        <Figure label="State" value={cube.state} />
        <Figure label="Events a second" value={count(cube.records_per_s)} />
        <Figure label="Records behind" value={count(cube.lag_records)} />
        <Figure label="Low watermark" value={behind(data.now_ms, cube.low_watermark_ms)} />
        <Figure label="Window" value={duration(data.window_ms)} />
      </Flex>
      <Text>
        Table {data.table}. Low watermark {instant(cube.low_watermark_ms)}
        {held ? `, held by partition ${held.partition} of ${held.receiver}` : ""}.
        {data.horizon_ms === null ? "" : ` Purged up to ${instant(data.horizon_ms)}.`}
      </Text>
      <Section title="Problems">
        <Problems of={data.problems} />
      </Section>
      <Section title="Segments over time">
        <Timeline lowWatermarkMs={cube.low_watermark_ms} nowMs={data.now_ms} segments={segments} />
      </Section>
      <Section title="Segments">
        <LongTable
          cells={(row) => {
            const at = segments.segment.length - 1 - row; // the newest first
            return [
              segments.segment[at],
              <State key="state" of={segments.state[at]!} />,
              segments.version[at],
              segments.parts[at],
              count(segments.events[at] ?? null),
              count(segments.late_events[at] ?? null),
              segments.building[at] ? "building" : "",
              segments.note[at],
            ];
          }}
          columns={["Segment", "State", "Version", "Parts", "Events", "Late", "Build", "Note"]}
          label="Segments"
          rows={segments.segment.length}
        />
      </Section>
      <BuildsOf cube={cube.name} />
      <RefusedOf data={data} />
      <WatermarkOf cube={cube.name} />
      <Section title="Partitions">
        <LongTable
          cells={(row) => {
            const each = data.partitions[row]!;
            return [
              each.partition,
              each.receiver,
              count(each.position),
              each.log_end === null ? "unknown" : count(Math.max(0, each.log_end - each.position)),
              instant(each.watermark_ms),
              each.idle ? "idle" : "",
              behind(data.now_ms, each.reported_ms),
            ];
          }}
          columns={["Partition", "Receiver", "Position", "Behind", "Watermark", "Idle", "Reported"]}
          label="Partitions"
          rows={data.partitions.length}
        />
      </Section>
    </Stack>
  );
}
