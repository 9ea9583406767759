// The Kafka fleet: see plugins/rtolap/airflow/page/fleet_messages.py. Times are milliseconds since the epoch.

import { Flex, Input, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { RunDag } from "./actions";
import { usePolled } from "./data";
import type { Rights } from "./messages";
import { Figure, Fresh, LongTable, Section, State } from "./parts";
import { Approvals, Before } from "./plans";
import { Share, Warning } from "./share";
import { behind, bytes, count, duration, instant } from "./words";

interface Broker {
  broker: number;
  host: string;
  rack: string;
  state: string;
  error: string;
}

interface Disk {
  broker: number;
  path: string;
  total_bytes: number | null;
  used_bytes: number | null;
  used: number | null;
  offline: boolean;
}

interface Move {
  partition: string;
  state: string;
  brokers: string;
  size_bytes: number;
  copied_bytes: number;
  bytes_per_s: number;
  left_s: number | null;
  note: string;
}

interface Plan {
  plan_id: string;
  digest: string;
  state: string;
  by: string;
  submitted_ms: number;
  counts: Record<string, number>;
  total_bytes: number;
  moved_bytes: number;
  left_bytes: number;
  bytes_per_s: number;
  throttle_bytes_per_s: number | null;
  expected_end_ms: number | null;
  stages: { stage: number; moves: number; ended: number; moved_bytes: number; total_bytes: number }[];
  moves: Move[];
  warnings: string[];
}

interface SlowBroker {
  broker: number;
  request: string;
  state: string;
  is_slow: boolean;
  since_ms: number;
  requests: number | null;
  p99_ms: number | null;
  stage: string | null;
  stages: Record<string, { mean_ms: number | null; p99_ms: number | null }>;
  cause: string;
}

interface Fleet {
  now_ms: number;
  cluster: string;
  clusters: string[];
  brokers: Broker[];
  disks: Disk[];
  plan: Plan | null;
  slow: SlowBroker[];
  slow_from_ms: number | null;
  slow_missing: string[];
  error: string;
  slow_error: string;
}

const STAGES = ["request queue", "local", "remote", "throttle", "response queue", "send", "total"];

export function FleetView({
  cluster,
  choose,
  rights,
}: {
  cluster: string;
  choose: (cluster: string) => void;
  rights: Rights | null;
}) {
  const polled = usePolled<Fleet>(`rtolap/page/fleet?cluster=${encodeURIComponent(cluster || "default")}`, 5000);
  return (
    <Stack gap={6}>
      <Approvals rights={rights} />
      <Fresh of={polled}>{(data) => <Shown choose={choose} data={data} rights={rights} />}</Fresh>
    </Stack>
  );
}

function Shown({ data, choose, rights }: { data: Fleet; choose: (cluster: string) => void; rights: Rights | null }) {
  const known = data.disks.filter((each) => each.used !== null).map((each) => each.used!);
  const slow = new Set(data.slow.filter((each) => each.is_slow).map((each) => each.broker));
  return (
    <Stack gap={6}>
      {data.clusters.length > 1 ? (
        <select aria-label="Kafka cluster" onChange={(event) => choose(event.target.value)} value={data.cluster}>
          {data.clusters.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      ) : null}
      {data.error ? <Warning text={`Brokers and the plan of ${data.cluster} are not known: ${data.error}`} /> : null}
      <Flex gap={3} wrap="wrap">
        <Figure label="Brokers" value={data.error ? "unknown" : count(data.brokers.length)} />
        <Figure label="Fullest disk" value={known.length ? percent(Math.max(...known)) : "unknown"} />
        <Figure label="Emptiest disk" value={known.length ? percent(Math.min(...known)) : "unknown"} />
        <Figure label="Slow brokers" value={data.slow_from_ms === null ? "unknown" : count(slow.size)} />
      </Flex>
      <Section title="Plan">
        {data.plan ? <OnePlan cluster={data.cluster} nowMs={data.now_ms} plan={data.plan} rights={rights} /> : null}
        {!data.plan && !data.error ? <Text>No plan was submitted.</Text> : null}
      </Section>
      <Section title="Brokers">
        <LongTable
          cells={(row) => {
            const each = data.brokers[row]!;
            return [each.broker, <State key="state" of={each.state} />, each.host, each.rack, each.error];
          }}
          columns={["Broker", "State", "Address", "Rack", "Detail"]}
          heightPx={260}
          idOf={(row) => data.brokers[row]!.broker}
          label="Brokers"
          rows={data.brokers.length}
        />
      </Section>
      <Section title="Disks">
        <LongTable
          cells={(row) => {
            const each = data.disks[row]!;
            const state = each.offline ? "OFFLINE" : "ONLINE";
            return [
              each.broker,
              each.path,
              <State key="state" of={state} />,
              <Share key="used" of={each.used} />,
              bytes(each.used_bytes),
              bytes(each.total_bytes),
            ];
          }}
          columns={["Broker", "Directory", "State", "Used", "Bytes", "Of"]}
          heightPx={300}
          idOf={(row) => `${data.disks[row]!.broker} ${data.disks[row]!.path}`}
          label="Disks of brokers"
          rows={data.disks.length}
        />
      </Section>
      <Section title="Slow brokers">
        {data.slow_error ? <Warning text={`Slow brokers are not known: ${data.slow_error}`} /> : null}
        {data.slow_missing.map((line) => (
          <Warning key={line} text={`Not read: ${line}`} />
        ))}
        {data.slow_error || data.slow_from_ms !== null ? null : <Text>The next look tells: brokers are judged from one look to the next.</Text>}
        <LongTable
          cells={(row) => ofSlow(data.slow[row]!, data.now_ms)}
          columns={["Broker", "Request", "State", "Since", "Requests", "p99", "Slowest stage", "Behind it", ...STAGES]}
          idOf={(row) => `${data.slow[row]!.broker} ${data.slow[row]!.request}`}
          label="Stages of requests"
          rows={data.slow.length}
        />
      </Section>
    </Stack>
  );
}

function OnePlan({ plan, cluster, nowMs, rights }: { plan: Plan; cluster: string; nowMs: number; rights: Rights | null }) {
  const [reason, setReason] = useState("");
  const runs = ["queued", "running", "paused"].includes(plan.state);
  const states = Object.entries(plan.counts)
    .map(([state, moves]) => `${count(moves)} ${state}`)
    .join(", ");
  return (
    <Stack gap={3}>
      <Flex align="center" gap={3} wrap="wrap">
        <Text fontWeight="semibold">{plan.plan_id}</Text>
        <State of={plan.state} />
        <RunDag
          action={{
            dagId: "rtolap_fleet_cancel",
            withdrawn: !runs,
            label: "Cancel the plan",
            title: `Cancel plan ${plan.plan_id}`,
            explanation: "What has not begun does not begin. What is incomplete is undone. What is done stays.",
            confirm: plan.plan_id,
            conf: () => ({ plan_id: plan.plan_id, reason, cluster }),
            reset: () => setReason(""),
            children: (
              <Input aria-label="Reason" onChange={(event) => setReason(event.target.value)} placeholder="Reason" value={reason} />
            ),
          }}
          rights={rights}
        />
      </Flex>
      <Text>
        {states}. {bytes(plan.moved_bytes)} of {bytes(plan.total_bytes)} are moved. Submitted by {plan.by} at {instant(plan.submitted_ms)}.
      </Text>
      {plan.warnings.map((line) => (
        <Warning key={line} text={line} />
      ))}
      {plan.state === "ended" ? null : (
        <Flex gap={3} wrap="wrap">
          <Figure label="Left to copy" value={bytes(plan.left_bytes)} />
          <Figure label="Copied a second" value={bytes(plan.bytes_per_s)} />
          <Figure label="Throttle a second" value={plan.throttle_bytes_per_s === null ? "none" : bytes(plan.throttle_bytes_per_s)} />
          <Figure label="Expected end" value={plan.expected_end_ms === null ? "unknown" : `in ${duration(plan.expected_end_ms - nowMs)}`} />
        </Flex>
      )}
      <LongTable
        cells={(row) => {
          const each = plan.stages[row]!;
          return [each.stage, `${count(each.ended)} of ${count(each.moves)}`, `${bytes(each.moved_bytes)} of ${bytes(each.total_bytes)}`];
        }}
        columns={["Stage", "Moves that have ended", "Moved"]}
        heightPx={160}
        idOf={(row) => plan.stages[row]!.stage}
        label="Stages of the plan"
        rows={plan.stages.length}
      />
      {plan.moves.length === 0 ? null : (
        <LongTable
          cells={(row) => ofMove(plan.moves[row]!)}
          columns={["Partition", "State", "Brokers", "Size", "Copied", "A second", "Left", "Detail"]}
          heightPx={260}
          idOf={(row) => plan.moves[row]!.partition}
          label="Moves under way"
          rows={plan.moves.length}
        />
      )}
      {plan.digest ? <Before digest={plan.digest} key={plan.digest} /> : null}
    </Stack>
  );
}

function ofMove(each: Move) {
  return [
    each.partition,
    <State key="state" of={each.state} />,
    each.brokers,
    bytes(each.size_bytes),
    bytes(each.copied_bytes),
    bytes(each.bytes_per_s),
    each.left_s === null ? "unknown" : duration(each.left_s * 1000),
    each.note,
  ];
}

function ofSlow(each: SlowBroker, nowMs: number) {
  return [
    each.broker,
    each.request,
    <State key="state" of={each.state} />,
    each.since_ms ? behind(nowMs, each.since_ms) : "",
    count(each.requests),
    ms(each.p99_ms),
    each.stage ?? "unknown",
    each.cause,
    ...STAGES.map((stage) => {
      const times = each.stages[stage];
      return times && (times.mean_ms !== null || times.p99_ms !== null) ? `${ms(times.mean_ms)} / ${ms(times.p99_ms)}` : "";
    }),
  ];
}

function ms(value: number | null): string {
  return value === null ? "?" : `${Number(value.toPrecision(3))} ms`;
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}
