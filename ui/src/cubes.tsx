import { Button, Flex, Heading, Input, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { DateTime, RunDag } from "./actions";
import { BuildsOf, CuboidsOf, RefusedOf, WatermarkOf } from "./cube_parts";
import { usePolled } from "./data";
import type { CubeList, CubePage, Rights } from "./messages";
import { Figure, Fresh, LongTable, Problems, Section, State } from "./parts";
import { Timeline } from "./timeline";
import { WindowsOf } from "./windows";
import { behind, count, delay, duration, instant } from "./words";

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
              idOf={(row) => shown[row]!.name}
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
        <Switches page={polled.data} rights={rights} />
        <Requeue page={polled.data} rights={rights} />
      </Flex>
      <Fresh of={polled}>{(data) => <Details data={data} rights={rights} />}</Fresh>
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

const SWITCH = "rtolap_cube_switch";

// A cube that is on can be paused or turned off; what is not on is started again.
function Switches({ page, rights }: { page: CubePage | null; rights: Rights | null }) {
  const [reason, setReason] = useState("");
  if (page === null) return null;
  const { name, state } = page.cube;
  const children = <Input aria-label="Reason" onChange={(event) => setReason(event.target.value)} placeholder="Reason" value={reason} />;
  const reset = () => setReason("");
  const conf = (to: string) => () => ({ cube: name, to, reason });
  return (
    <>
      <RunDag
        action={{
          dagId: SWITCH,
          label: "Pause",
          title: `Pause ${name}`,
          explanation: "Its receivers read nothing until it is resumed. What they hold is answered, and segments that are closed are built.",
          conf: conf("pause"),
          children,
          reset,
          withdrawn: state !== "on",
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId: SWITCH,
          label: "Resume",
          title: `Resume ${name}`,
          explanation: "Its receivers read on where they have stopped.",
          conf: conf("resume"),
          children,
          reset,
          withdrawn: state !== "paused",
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId: SWITCH,
          label: "Turn off",
          title: `Turn ${name} off`,
          explanation: "Its receivers stop reading, until it is turned on again. What they hold is answered. A cube has to be off before it can be dropped.",
          confirm: name,
          conf: conf("disable"),
          children,
          reset,
          withdrawn: state === "off",
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId: SWITCH,
          label: "Turn on",
          title: `Turn ${name} on`,
          explanation: "Its receivers read on where they have stopped. The first time, its partitions are assigned.",
          conf: conf("enable"),
          children,
          reset,
          withdrawn: state !== "off",
        }}
        rights={rights}
      />
    </>
  );
}

function Requeue({ page, rights }: { page: CubePage | null; rights: Rights | null }) {
  const [wanted, setWanted] = useState("");
  if (page === null) return null;
  const chosen = page.failed.find((each) => each.segment === wanted) ?? page.failed[0];
  return (
    <RunDag
      action={{
        dagId: "rtolap_requeue",
        label: "Requeue",
        title: "Queue a segment again whose build has failed",
        explanation: "It is built from its staged parts, of which receivers upload again what is lost or damaged.",
        conf: () => ({ cube: page.cube.name, segment: chosen?.segment }),
        withdrawn: chosen === undefined,
        children: (
          <>
            <select aria-label="Segment" onChange={(event) => setWanted(event.target.value)} value={chosen?.segment ?? ""}>
              {page.failed.map((each) => (
                <option key={each.segment} value={each.segment}>
                  {each.segment}
                </option>
              ))}
            </select>
            <Text overflowWrap="anywhere">{chosen?.error ?? ""}</Text>
          </>
        ),
      }}
      rights={rights}
    />
  );
}

const TURNED: Record<string, string> = { enable: "Turned on", disable: "Turned off", pause: "Paused", resume: "Resumed" };

function Details({ data, rights }: { data: CubePage; rights: Rights | null }) {
  const { cube, segments } = data;
  const held = data.partitions.find((each) => !each.idle);
  return (
    <Stack gap={6}>
      <Flex gap={3} wrap="wrap">
        <Figure label="State" value={cube.state} />
        <Figure label="Events a second" value={count(cube.records_per_s)} />
        <Figure label="Records behind" value={count(cube.lag_records)} />
        <Figure label="Freshness" value={delay(cube.freshness_ms)} />
        <Figure label="Low watermark" value={behind(data.now_ms, cube.low_watermark_ms)} />
        <Figure label="Window" value={duration(data.window_ms)} />
      </Flex>
      <Text>
        Table {data.table}. Low watermark {instant(cube.low_watermark_ms)}
        {held ? `, held by partition ${held.partition} of ${held.receiver}` : ""}.
        {data.horizon_ms === null ? "" : ` Purged up to ${instant(data.horizon_ms)}.`}
      </Text>
      {data.switched ? (
        <Text overflowWrap="anywhere">
          {TURNED[data.switched.to] ?? data.switched.to} {behind(data.now_ms, data.switched.at_ms)}
          {data.switched.by ? ` by ${data.switched.by}` : ""}
          {data.switched.reason ? `: ${data.switched.reason}` : "."}
        </Text>
      ) : null}
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
          idOf={(row) => segments.segment[segments.segment.length - 1 - row]!}
          label="Segments"
          rows={segments.segment.length}
        />
      </Section>
      <BuildsOf cube={cube.name} />
      <CuboidsOf data={data} />
      <WindowsOf cube={cube.name} rights={rights} />
      <RefusedOf data={data} rights={rights} />
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
          idOf={(row) => data.partitions[row]!.partition}
          label="Partitions"
          rows={data.partitions.length}
        />
      </Section>
    </Stack>
  );
}
