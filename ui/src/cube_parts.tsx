// What a cube's page shows beside the cube, each asked by itself: see page/builds.py and page/watermark.py.

import { Flex, Stack, Text } from "@chakra-ui/react";

import { usePolled } from "./data";
import { type TaskLink, TaskLinks } from "./links";
import type { CubePage, Rights } from "./messages";
import { Figure, Fresh, LongTable, Section, State } from "./parts";
import { RefusedRecords } from "./refused";
import { Warning } from "./share";
import { behind, bytes, count, duration, instant } from "./words";

interface BuildProcess {
  kind: string;
  state: string;
  reason: string;
  started_ms: number | null;
  step: string;
  cuboids_done: number | null;
  cuboids: number | null;
  rows: number | null;
  stages: { stages: number; stages_done: number; tasks: number; tasks_done: number; tasks_failed: number } | null;
  segments: { segment: string; version: number; state: string; error: string }[];
  task: TaskLink | null;
}

interface Builds {
  now_ms: number;
  processes: BuildProcess[];
}

interface Watermarks {
  now_ms: number;
  application: string;
  global_ms: number | null;
  approved_until_ms: number | null;
  levels: { level: string; input_ms: number | null; output_ms: number | null; published_ms: number }[];
  sources: {
    level: string;
    watermark_ms: number | null;
    counting: number;
    holding: number;
    unseen: number;
    awaited_partitions: number[];
    problem: string;
  }[];
  hosts: {
    source: string;
    host: string;
    latest_ms: number | null;
    behind_ms: number | null;
    holds: boolean;
    share_ppm: number;
    hint: string;
  }[];
  problems: string[];
  error: string;
}

interface SegmentCuboids {
  now_ms: number;
  segment: string;
  version: number;
  cuboids: { name: string; dimensions: string[]; rows: number; files: number; bytes: number }[];
}

function path(cube: string, part: string): string {
  return `rtolap/page/cubes/${encodeURIComponent(cube)}/${part}`;
}

export function BuildsOf({ cube }: { cube: string }) {
  const polled = usePolled<Builds>(path(cube, "builds"), 5000);
  return (
    <Section title="Builds">
      <Fresh of={polled}>
        {(data) => {
          const segments = data.processes.flatMap((of) => of.segments);
          return (
            <Stack gap={3}>
              {data.processes.length === 0 ? <Text>No build has run on this agent.</Text> : null}
              <LongTable
                cells={(row) => ofProcess(data.processes[row]!, data.now_ms)}
                columns={["Process", "State", "Started", "Last step", "Cuboids", "Rows", "Spark stages", "Spark tasks", "In Airflow", "Detail"]}
                heightPx={160}
                idOf={(row) => `${data.processes[row]!.kind} ${data.processes[row]!.started_ms}`}
                label="Spark processes"
                rows={data.processes.length}
              />
              {segments.length === 0 ? null : (
                <LongTable
                  cells={(row) => {
                    const each = segments[row]!;
                    return [each.segment, each.version, <State key="state" of={each.state} />, each.error];
                  }}
                  columns={["Segment", "Version", "State", "Error"]}
                  heightPx={220}
                  idOf={(row) => segments[row]!.segment}
                  label="Segments that are built together"
                  rows={segments.length}
                />
              )}
            </Stack>
          );
        }}
      </Fresh>
    </Section>
  );
}

function tasksOf(each: { tasks: number; tasks_done: number; tasks_failed: number }): string {
  const failed = each.tasks_failed ? `, ${count(each.tasks_failed)} failed` : "";
  return `${count(each.tasks_done)} of ${count(each.tasks)}${failed}`;
}

function ofProcess(each: BuildProcess, nowMs: number) {
  return [
    each.kind,
    <State key="state" of={each.state || "ended"} />,
    each.started_ms === null ? "" : behind(nowMs, each.started_ms),
    each.step,
    each.cuboids === null ? "" : `${count(each.cuboids_done)} of ${count(each.cuboids)}`,
    each.rows === null ? "" : count(each.rows),
    each.stages === null ? "" : `${count(each.stages.stages_done)} of ${count(each.stages.stages)}`,
    each.stages === null ? "" : tasksOf(each.stages),
    <TaskLinks key="task" of={each.task} />,
    each.reason,
  ];
}

export function WatermarkOf({ cube }: { cube: string }) {
  const polled = usePolled<Watermarks>(path(cube, "watermark"), 5000);
  return (
    <Section title="What holds the watermark">
      <Fresh of={polled}>
        {(data) => (data.application ? <Held data={data} /> : <Text>The cube closes by its partitions; those that hold it come first below.</Text>)}
      </Fresh>
    </Section>
  );
}

function Held({ data }: { data: Watermarks }) {
  if (data.error) return <Warning text={`Application ${data.application} is not known: ${data.error}`} />;
  return (
    <Stack gap={3}>
      <Flex gap={3} wrap="wrap">
        <Figure label="Application" value={data.application} />
        <Figure label="Its low watermark" value={behind(data.now_ms, data.global_ms)} />
        {data.approved_until_ms === null ? null : <Figure label="Approved up to" value={instant(data.approved_until_ms)} />}
        {data.sources.map((each) => (
          <Figure
            key={each.level}
            label={`Hosts that hold ${each.level}`}
            value={`${count(each.holding)} of ${count(each.counting)}${each.unseen ? `, ${count(each.unseen)} never read` : ""}`}
          />
        ))}
      </Flex>
      {[
        ...data.problems,
        ...data.sources.flatMap((each) => [
          ...(each.problem ? [`${each.level}: ${each.problem}`] : []),
          ...(each.awaited_partitions.length ? [`${each.level}: no report yet of partitions ${each.awaited_partitions.join(", ")}`] : []),
        ]),
      ].map((line) => (
        <Warning key={line} text={line} />
      ))}
      <LongTable
        cells={(row) => {
          const each = data.hosts[row]!;
          return [
            each.host,
            each.source,
            each.holds ? "holds it" : "",
            each.behind_ms === null ? "unknown" : duration(each.behind_ms),
            instant(each.latest_ms),
            `${count(each.share_ppm)} ppm`,
            each.hint,
          ];
        }}
        columns={["Host", "Source", "Watermark", "Behind", "Read up to", "May owe", "Hint"]}
        heightPx={260}
        idOf={(row) => `${data.hosts[row]!.source} ${data.hosts[row]!.host}`}
        label="Hosts that are behind"
        rows={data.hosts.length}
      />
      <LongTable
        cells={(row) => {
          const each = data.levels[row]!;
          return [each.level, behind(data.now_ms, each.input_ms), behind(data.now_ms, each.output_ms), behind(data.now_ms, each.published_ms)];
        }}
        columns={["Level", "Input", "Output", "Published"]}
        heightPx={200}
        idOf={(row) => data.levels[row]!.level}
        label="Levels of the application"
        rows={data.levels.length}
      />
    </Stack>
  );
}

export function RefusedOf({ data, rights }: { data: CubePage; rights: Rights | null }) {
  const late = data.segments.late_events.reduce<number>((sum, each) => sum + (each ?? 0), 0);
  return (
    <Section title="Late and refused events">
      <Stack gap={3}>
        <Text>
          {count(late)} events came after the first version of their segments, and are in the counts of later ones. Those that are refused are in no
          count; `rtolap dead-letters` lists them all.
        </Text>
        {data.late.length > 0 ? (
          <LongTable
            cells={(row) => {
              const each = data.late[row]!;
              return [each.segment, instant(each.event_ms), each.partition, each.offset, each.receiver];
            }}
            columns={["Segment", "Event time", "Partition", "Offset", "Read by"]}
            heightPx={200}
            idOf={(row) => `${data.late[row]!.partition} ${data.late[row]!.offset}`}
            label="Late events"
            rows={data.late.length}
          />
        ) : null}
        <LongTable
          cells={(row) => {
            const each = data.refused[row]!;
            return [each.reason, count(each.records), each.example];
          }}
          columns={["Reason", "Records, at least", "One of them"]}
          heightPx={200}
          idOf={(row) => data.refused[row]!.reason}
          label="Refused events"
          rows={data.refused.length}
        />
        {rights?.may_ask ? <RefusedRecords cube={data.cube.name} /> : null}
      </Stack>
    </Section>
  );
}

// Of the newest segment in history: the others have the same, unless the cube's definition was changed.
export function CuboidsOf({ data }: { data: CubePage }) {
  const at = data.segments.state.lastIndexOf("READY");
  return at < 0 ? null : <Cuboids cube={data.cube.name} segment={data.segments.segment[at]!} />;
}

function Cuboids({ cube, segment }: { cube: string; segment: string }) {
  const polled = usePolled<SegmentCuboids>(path(cube, `segments/${encodeURIComponent(segment)}/cuboids`), 30_000);
  return (
    <Section title="Cuboids">
      <Fresh of={polled}>
        {(data) => (
          <Stack gap={3}>
            <Text>
              Of {data.segment}, the newest segment in history, version {data.version}:{" "}
              {bytes(data.cuboids.reduce((sum, each) => sum + each.bytes, 0))}.
            </Text>
            <LongTable
              cells={(row) => {
                const each = data.cuboids[row]!;
                return [each.dimensions.join(", ") || "no dimension", count(each.rows), each.files, bytes(each.bytes)];
              }}
              columns={["Dimensions", "Rows", "Files", "Bytes"]}
              idOf={(row) => data.cuboids[row]!.dimensions.join()}
              label="Cuboids"
              rows={data.cuboids.length}
            />
          </Stack>
        )}
      </Fresh>
    </Section>
  );
}
