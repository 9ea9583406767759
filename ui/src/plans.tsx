// What a plan of the Kafka fleet does to disks, and the plans that wait for somebody's approval.

import { Button, Link, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { request, usePolled } from "./data";
import { taskAddress } from "./links";
import { Fresh, LongTable, Section } from "./parts";
import { Share, Warning } from "./share";
import { behind, bytes, count, duration } from "./words";

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

interface Question {
  subject: string;
  body: string | null;
  created_at: string;
  task_instance: { dag_id: string; dag_run_id: string; task_id: string; map_index: number };
}

const QUESTIONS = "api/v2/dags/~/dagRuns/~/hitlDetails?response_received=false&dag_id_pattern=rtolap_fleet_&limit=50";

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
            label="Disks before and after the plan"
            rows={data.disks.length}
          />
        </Stack>
      )}
    </Fresh>
  );
}

// Questions that nobody has answered: asked of Airflow itself, which shows each user what that user may see.
export function Approvals() {
  const polled = usePolled<{ hitl_details: Question[] }>(QUESTIONS, 10_000);
  return (
    <Section title="Waiting for an approval">
      <Fresh of={polled}>
        {(data) => (
          <Stack gap={4}>
            {data.hitl_details.length === 0 ? <Text>Nothing waits for an approval.</Text> : null}
            {data.hitl_details.map((each) => (
              <OneQuestion each={each} key={`${each.task_instance.dag_id} ${each.task_instance.dag_run_id} ${each.task_instance.task_id}`} />
            ))}
          </Stack>
        )}
      </Fresh>
    </Section>
  );
}

function OneQuestion({ each }: { each: Question }) {
  const task = each.task_instance;
  const form = `${taskAddress(task.dag_id, task.dag_run_id, task.task_id, task.map_index)}/required_actions`;
  return (
    <Stack borderRadius="md" borderWidth="1px" gap={2} p={4}>
      <Text fontWeight="semibold">{each.subject}</Text>
      <Text>
        {task.dag_id}, asked {behind(Date.now(), Date.parse(each.created_at))}
      </Text>
      <Text whiteSpace="pre-wrap">{each.body ?? ""}</Text>
      <Link href={form}>Answer in Airflow</Link>
      <PlanOf dagId={task.dag_id} runId={task.dag_run_id} />
    </Stack>
  );
}

// The plan of a question is the result of the task before it; a repair has none.
function PlanOf({ dagId, runId }: { dagId: string; runId: string }) {
  const [digest, setDigest] = useState("");
  const [problem, setProblem] = useState("");
  const path = `api/v2/dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(runId)}/taskInstances/plan/xcomEntries/return_value`;
  async function find() {
    try {
      const found = await request<{ value: unknown }>(path);
      const value = (typeof found.value === "string" ? JSON.parse(found.value) : found.value) as { digest?: unknown };
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
