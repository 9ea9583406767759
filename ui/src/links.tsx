// Links from what the page shows to Airflow: the task that waits for a process, its run, and the process's log.

import { Flex, Link } from "@chakra-ui/react";

import { address } from "./data";

export interface TaskLink {
  dag_id: string;
  run_id: string;
  task_id: string;
  map_index: number;
  key: string;
  state: string;
  reason: string;
}

const part = encodeURIComponent;

export function runAddress(dagId: string, runId: string): string {
  return address(`dags/${part(dagId)}/runs/${part(runId)}`);
}

export function taskAddress(dagId: string, runId: string, taskId: string, mapIndex: number): string {
  const mapped = mapIndex < 0 ? "" : `/mapped/${mapIndex}`;
  return `${runAddress(dagId, runId)}/tasks/${part(taskId)}${mapped}`;
}

export function TaskLinks({ of }: { of: TaskLink | null }) {
  if (of === null) return null;
  const log = address(`rtolap/dags/${part(of.dag_id)}/processes/${part(of.key)}/log`);
  return (
    <Flex gap={3}>
      <Link href={taskAddress(of.dag_id, of.run_id, of.task_id, of.map_index)}>Task</Link>
      <Link href={runAddress(of.dag_id, of.run_id)}>Run</Link>
      <Link href={log}>Log</Link>
    </Flex>
  );
}
