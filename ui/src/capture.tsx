// Change capture: see plugins/rtolap/airflow/page/capture/messages.py. Times are milliseconds since the epoch.

import { Flex, Stack, Text } from "@chakra-ui/react";

import { usePolled } from "./data";
import { type TaskLink, TaskLinks } from "./links";
import { Figure, Fresh, LongTable, Section, State } from "./parts";
import { Warning } from "./share";
import { behind, bytes, count, duration, instant } from "./words";

interface Cluster {
  address: string;
  servers: number;
  error: string;
  missing: string[];
  queues_cut: number;
}

interface Peer {
  cluster: string;
  peer: string;
  enabled: boolean | null;
  sinks: number | null;
  queues: number;
  recovered_queues: number;
  lag_ms: number | null;
  lag_trend: number | null;
  catch_up_ms: number | null;
  waits: Record<string, number>;
}

interface Queue {
  cluster: string;
  peer: string;
  server: string;
  recovered_from: string[];
  logs: number | null;
  log: string;
  position_bytes: number | null;
  log_bytes: number | null;
  left_bytes: number | null;
  is_lower_bound: boolean;
  lag_ms: number | null;
  last_shipped_ms: number | null;
  reported_ms: number | null;
  reason: string;
  since_ms: number | null;
}

interface Consumer {
  process: string;
  owner: string;
  state: string;
  shares: number[];
  lag: number | null;
  rate_per_s: number;
  last_error: string;
}

interface Subscription {
  cluster: string;
  name: string;
  state: string;
  problem: string;
  follows: string;
  listener: string;
  start_ms: number | null;
  consumers: Consumer[];
  delivered: number | null;
  dead_letters: number | null;
  failing_events: number | null;
  rows_apart: number | null;
  task: TaskLink | null;
}

interface Poison {
  subscription: string;
  apart: boolean;
  row: string;
  tries: number;
  since_ms: number | null;
  reason: string;
}

interface Capture {
  now_ms: number;
  clusters: Cluster[];
  peers: Peer[];
  queues: Queue[];
  subscriptions: Subscription[];
  poison: Poison[];
  agent_error: string;
  definitions_error: string;
}

export function CaptureView({ name }: { name: string }) {
  const polled = usePolled<Capture>("rtolap/page/capture", 5000);
  return <Fresh of={polled}>{(data) => <Shown data={data} name={name} />}</Fresh>;
}

function Shown({ data, name }: { data: Capture; name: string }) {
  const subscriptions = data.subscriptions.filter((each) => !name || each.name === name);
  const consumers = subscriptions.flatMap((of) => of.consumers.map((each) => ({ of, each })));
  const lags = data.queues.map((each) => each.lag_ms ?? 0);
  return (
    <Stack gap={6}>
      <Missing data={data} />
      <Flex gap={3} wrap="wrap">
        <Figure label="Subscriptions" value={count(data.subscriptions.length)} />
        <Figure label="Queues" value={count(data.queues.length)} />
        <Figure label="Oldest edit that waits" value={lags.length ? duration(lags.reduce((a, b) => Math.max(a, b))) : "none"} />
        <Figure label="Events and rows that fail" value={count(data.poison.length)} />
      </Flex>
      <Section title="Subscriptions">
        {name ? <Text>Only {name} is shown.</Text> : null}
        {subscriptions.length === 0 ? <Text>No subscription is known.</Text> : null}
        <LongTable
          cells={(row) => ofSubscription(subscriptions[row]!)}
          columns={["Subscription", "State", "Follows", "Listener", "Delivered", "Dead letters", "Fail", "Rows apart", "In Airflow", "Detail"]}
          heightPx={300}
          idOf={(row) => `${subscriptions[row]!.cluster} ${subscriptions[row]!.name}`}
          label="Subscriptions"
          rows={subscriptions.length}
        />
      </Section>
      <Section title="Consumers">
        <LongTable
          cells={(row) => ofConsumer(consumers[row]!.of, consumers[row]!.each)}
          columns={["Subscription", "Consumer", "State", "Shares", "Events that wait", "Events/s", "Last error"]}
          heightPx={260}
          idOf={(row) => `${consumers[row]!.of.name} ${consumers[row]!.each.process}`}
          label="Consumers"
          rows={consumers.length}
        />
      </Section>
      <Section title="Events that fail">
        {data.poison.length === 0 ? <Text>No event is known to fail.</Text> : null}
        <LongTable
          cells={(row) => ofPoison(data.poison[row]!, data.now_ms)}
          columns={["Subscription", "What", "Row", "Tries", "Since", "Reason"]}
          heightPx={260}
          idOf={(row) => `${data.poison[row]!.subscription} ${data.poison[row]!.row}`}
          label="Events that fail"
          rows={data.poison.length}
        />
      </Section>
      <Section title="Peers">
        <LongTable
          cells={(row) => ofPeer(data.peers[row]!)}
          columns={["Peer", "Enabled", "Sinks", "Queues", "Recovered", "Behind", "Trend", "Caught up in", "Waits", "Cluster"]}
          heightPx={260}
          idOf={(row) => `${data.peers[row]!.cluster} ${data.peers[row]!.peer}`}
          label="Peers"
          rows={data.peers.length}
        />
      </Section>
      <Section title="Queues of region servers">
        <LongTable
          cells={(row) => ofQueue(data.queues[row]!, data.now_ms)}
          columns={["Peer", "Region server", "Recovered from", "Logs", "Log", "Position", "Log size", "Left to ship", "Behind", "Last shipped", "Reported", "Waits for"]}
          idOf={(row) => row}
          label="Queues of region servers"
          rows={data.queues.length}
        />
      </Section>
    </Stack>
  );
}

// What is away, by name: the other parts stand.
function Missing({ data }: { data: Capture }) {
  const lines = [
    ...data.clusters.filter((each) => each.error).map((each) => `HBase ${each.address}: ${each.error}`),
    ...data.clusters.flatMap((each) => each.missing.map((what) => `HBase ${each.address}, ${what}`)),
    ...data.clusters
      .filter((each) => each.queues_cut)
      .map((each) => `HBase ${each.address}: ${count(each.queues_cut)} more queues are not shown, which are less behind`),
    ...(data.agent_error ? [`The agent's processes are not known: ${data.agent_error}`] : []),
    ...(data.definitions_error ? [`Definitions cannot be read: ${data.definitions_error}`] : []),
  ];
  return (
    <Stack gap={2}>
      {lines.map((line) => (
        <Warning key={line} text={line} />
      ))}
    </Stack>
  );
}

function ofSubscription(each: Subscription) {
  return [
    each.name,
    <State key="state" of={each.state} />,
    each.follows,
    each.listener,
    count(each.delivered),
    count(each.dead_letters),
    count(each.failing_events),
    count(each.rows_apart),
    <TaskLinks key="task" of={each.task} />,
    each.problem,
  ];
}

function ofConsumer(of: Subscription, each: Consumer) {
  return [
    of.name,
    each.owner || "nobody",
    <State key="state" of={each.state} />,
    each.shares.join(", "),
    count(each.lag),
    count(each.rate_per_s),
    each.last_error,
  ];
}

function ofPoison(each: Poison, nowMs: number) {
  return [
    each.subscription,
    each.apart ? "row set apart" : "event",
    each.row,
    each.apart ? "" : count(each.tries),
    each.since_ms === null ? "" : behind(nowMs, each.since_ms),
    each.reason,
  ];
}

function ofPeer(each: Peer) {
  return [
    each.peer,
    each.enabled === null ? "unknown" : each.enabled ? "yes" : "no",
    count(each.sinks),
    count(each.queues),
    each.recovered_queues ? count(each.recovered_queues) : "",
    each.lag_ms === null ? "unknown" : duration(each.lag_ms),
    trend(each.lag_trend),
    each.catch_up_ms === null ? "unknown" : duration(each.catch_up_ms),
    Object.entries(each.waits)
      .map(([reason, queues]) => `${reason} (${queues})`)
      .join("; "),
    each.cluster,
  ];
}

function trend(msPerS: number | null): string {
  if (msPerS === null) return "unknown";
  if (Math.abs(msPerS) < 1) return "steady";
  return `${msPerS > 0 ? "grows" : "shrinks"} by ${duration(Math.abs(msPerS))} a second`;
}

function size(value: number | null, isLowerBound: boolean): string {
  return value !== null && isLowerBound ? `${bytes(value)} or more` : bytes(value);
}

function ofQueue(each: Queue, nowMs: number) {
  const since = each.since_ms === null ? "" : `, ${duration(each.since_ms)}`;
  return [
    each.peer,
    each.server,
    each.recovered_from.join(", "),
    count(each.logs),
    each.log,
    bytes(each.position_bytes),
    size(each.log_bytes, each.is_lower_bound),
    size(each.left_bytes, each.is_lower_bound),
    each.lag_ms === null ? "unknown" : duration(each.lag_ms),
    instant(each.last_shipped_ms),
    behind(nowMs, each.reported_ms),
    each.reason ? `${each.reason}${since}` : "",
  ];
}
