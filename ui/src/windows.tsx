// Windows of a cube that wait, with what is missing, and their approval: see plugins/rtolap/airflow/page/windows.py.

import { Heading, Stack, Text } from "@chakra-ui/react";

import { RunDag } from "./actions";
import { usePolled } from "./data";
import type { Rights } from "./messages";
import { Fresh, LongTable, Section } from "./parts";
import { type Question, Questions } from "./questions";
import { Warning } from "./share";
import { behind, count, duration, instant } from "./words";

interface Share {
  source: string;
  expected_missing_ppm: number | null;
  bound_ppm: number | null;
}

interface WaitingWindow {
  window_end: string;
  end_ms: number;
  due_ms: number;
  run_id: string;
  conf: Record<string, unknown>;
  segments: string[];
  recorded: Record<string, Share>;
  reasons: string[];
  shares: Share[];
  hosts: { source: string; host: string; latest_ms: number | null; behind_ms: number | null; share_ppm: number; hint: string }[];
  hosts_behind: number;
}

interface Windows {
  now_ms: number;
  application: string;
  windows: WaitingWindow[];
  later: number;
  approvals: { until_ms: number; by: string; reason: string; at_ms: number }[];
  error: string;
}

const APPROVAL = "rtolap_window_approval";

export function WindowsOf({ cube, rights }: { cube: string; rights: Rights | null }) {
  const polled = usePolled<Windows>(`rtolap/page/cubes/${encodeURIComponent(cube)}/windows`, 10_000);
  if (polled.data && !polled.data.application) return null; // it closes by its partitions: nobody is asked
  return (
    <Section title="Windows that wait">
      <Fresh of={polled}>{(data) => <Shown data={data} rights={rights} />}</Fresh>
    </Section>
  );
}

function Shown({ data, rights }: { data: Windows; rights: Rights | null }) {
  return (
    <Stack gap={4}>
      {data.error ? <Warning text={`Windows of ${data.application} are not known: ${data.error}`} /> : null}
      {data.error || data.windows.length ? null : <Text>No window that has ended waits for its events.</Text>}
      <Questions dags={APPROVAL} rights={rights}>
        {(questions, answers) =>
          data.windows.map((each) => {
            const asked = questions.find((question) => isOf(question, data.application, each));
            return (
              <Stack aria-label={`Window that ends at ${instant(each.end_ms)}`} as="article" borderRadius="md" borderWidth="1px" gap={3} key={each.run_id} p={4}>
                <Incomplete each={each} nowMs={data.now_ms} />
                {asked ? answers(asked) : null}
                {asked ? (
                  <Text>Asked {behind(Date.now(), Date.parse(asked.created_at))}. Approve lets this window, and all that end before it, close as they are.</Text>
                ) : (
                  <Text>Nobody is asked about it now.</Text>
                )}
                <RunDag
                  action={{
                    dagId: APPROVAL,
                    label: "Ask now",
                    title: `Ask about the window that ends at ${instant(each.end_ms)}`,
                    explanation: "A question appears, here and in Airflow. Nothing closes before a person has approved it.",
                    conf: () => each.conf,
                    runId: each.run_id,
                    taken: `Run ${each.run_id} has asked about it before. Clear its task "ask" in Airflow to ask again.`,
                    withdrawn: asked !== undefined,
                  }}
                  rights={rights}
                />
              </Stack>
            );
          })
        }
      </Questions>
      {data.later ? <Text>{count(data.later)} later ones have ended and were not looked at.</Text> : null}
      <LongTable
        cells={(row) => {
          const each = data.approvals[row]!;
          return [instant(each.until_ms), each.by, behind(data.now_ms, each.at_ms), each.reason];
        }}
        columns={["Windows up to", "Approved by", "When", "Reason"]}
        heightPx={160}
        idOf={(row) => `${data.approvals[row]!.until_ms} ${data.approvals[row]!.at_ms}`}
        label="Approvals"
        rows={data.approvals.length}
      />
    </Stack>
  );
}

function isOf(question: Question, application: string, window: WaitingWindow): boolean {
  const fields = question.task_instance.rendered_fields;
  return fields.application === application && Date.parse(String(fields.window_end)) === window.end_ms;
}

function Incomplete({ each, nowMs }: { each: WaitingWindow; nowMs: number }) {
  return (
    <Stack gap={2}>
      <Heading as="h4" size="sm">
        Ended at {instant(each.end_ms)}, {behind(nowMs, each.end_ms)}
      </Heading>
      <Text overflowWrap="anywhere">Segments: {each.segments.join(", ")}</Text>
      {each.reasons.map((line) => (
        <Text key={line}>{line}</Text>
      ))}
      {each.shares.map((share) => (
        <Text key={share.source}>{missing(share)}</Text>
      ))}
      {Object.entries(each.recorded).map(([segment, share]) => (
        <Text key={segment}>
          {segment} was closed by force. Recorded then: {missing(share)}
        </Text>
      ))}
      <LongTable
        cells={(row) => {
          const host = each.hosts[row]!;
          return [
            host.host,
            host.source,
            instant(host.latest_ms),
            host.behind_ms === null ? "never seen" : duration(host.behind_ms),
            `${count(host.share_ppm)} ppm`,
            host.hint,
          ];
        }}
        columns={["Host", "Source", "Read up to", "Behind", "May owe", "Hint"]}
        heightPx={200}
        idOf={(row) => `${each.hosts[row]!.source} ${each.hosts[row]!.host}`}
        label="Hosts that the window waits for"
        rows={each.hosts.length}
      />
      {each.hosts_behind > each.hosts.length ? <Text>{count(each.hosts_behind)} hosts hold it; the furthest behind are shown.</Text> : null}
    </Stack>
  );
}

function missing(share: Share): string {
  const ppm = (value: number | null) => (value === null ? "unknown" : `${count(value)} ppm`);
  return `${share.source}: ${ppm(share.expected_missing_ppm)} of its events are expected to be missing, at most ${ppm(share.bound_ppm)}.`;
}
