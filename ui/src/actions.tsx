// What the page changes: runs of DAGs, started through Airflow's own API as the signed-in user.

import { Alert, Button, Dialog, Field, Input, Link, Portal, Stack, Text } from "@chakra-ui/react";
import { type ReactNode, useState } from "react";

import { address, CONFLICT, Refused, request } from "./data";
import type { Rights } from "./messages";
import { Warning } from "./share";

interface Action {
  dagId: string;
  label: string;
  title: string;
  explanation: string;
  confirm?: string; // what has to be typed, for what cannot be undone
  conf: () => Record<string, unknown>;
  runId?: string; // of the one run that there may be; else Airflow makes one up
  taken?: string; // what is said where that run is there already
  children?: ReactNode;
  reset?: () => void; // of what the dialog's fields hold, whenever it opens or closes
  disabled?: boolean;
  withdrawn?: boolean; // nothing is left to do: the button goes, and a dialog that is open says to its end what it started
}

export function RunDag({ rights, action }: { rights: Rights | null; action: Action }) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState("");
  const [run, setRun] = useState("");
  const [waits, setWaits] = useState(false);
  const [busy, setBusy] = useState(false);
  if (!rights?.may_start.includes(action.dagId) || (action.withdrawn && !open)) return null;

  async function start() {
    setBusy(true);
    setProblem("");
    try {
      // Without a logical date: Airflow has one run of each, and two people may start the same.
      const body = { logical_date: null, conf: action.conf(), ...(action.runId ? { dag_run_id: action.runId } : {}) };
      const made = await request<{ dag_run_id: string }>(`api/v2/dags/${action.dagId}/dagRuns`, body);
      setRun(made.dag_run_id);
      setWaits(await isPaused(action.dagId));
    } catch (error) {
      const isTaken = error instanceof Refused && error.status === CONFLICT && action.taken;
      setProblem(isTaken || (error instanceof Error ? error.message : String(error)));
    } finally {
      setBusy(false);
    }
  }

  function change(to: boolean) {
    setOpen(to);
    action.reset?.();
    setTyped("");
    setProblem("");
    setRun("");
    setWaits(false);
  }

  const mayStart = !busy && !run && !action.disabled && !action.withdrawn && (!action.confirm || typed === action.confirm);
  return (
    <Dialog.Root onOpenChange={(to: { open: boolean }) => change(to.open)} open={open}>
      <Dialog.Trigger asChild>
        <Button colorPalette={action.confirm ? "red" : "blue"} size="sm" variant="outline">
          {action.label}
        </Button>
      </Dialog.Trigger>
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content>
            <Dialog.Header>
              <Dialog.Title>{action.title}</Dialog.Title>
            </Dialog.Header>
            <Dialog.Body>
              <Stack gap={4}>
                <Text>{action.explanation}</Text>
                {action.children}
                {action.confirm ? (
                  <Field.Root required>
                    <Field.Label>Type {action.confirm} to confirm</Field.Label>
                    <Input onChange={(event) => setTyped(event.target.value)} value={typed} />
                  </Field.Root>
                ) : null}
                {problem ? (
                  <Alert.Root role="alert" status="error">
                    <Alert.Indicator />
                    <Alert.Title>{problem}</Alert.Title>
                  </Alert.Root>
                ) : null}
                {waits ? <Warning text={`${action.dagId} is paused in Airflow: the run waits until somebody unpauses it.`} /> : null}
                {run ? (
                  <Alert.Root role="status" status="success">
                    <Alert.Indicator />
                    <Alert.Title>
                      Started: <Link href={address(`dags/${action.dagId}/runs/${encodeURIComponent(run)}`)}>{run}</Link>
                    </Alert.Title>
                  </Alert.Root>
                ) : null}
              </Stack>
            </Dialog.Body>
            <Dialog.Footer>
              <Button onClick={() => change(false)} variant="ghost">
                {run ? "Close" : "Cancel"}
              </Button>
              <Button colorPalette={action.confirm ? "red" : "blue"} disabled={!mayStart} onClick={() => void start()}>
                Start
              </Button>
            </Dialog.Footer>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

// A run of a paused DAG waits. Where that is not known, nothing is said.
async function isPaused(dagId: string): Promise<boolean> {
  try {
    return (await request<{ is_paused: boolean }>(`api/v2/dags/${dagId}`)).is_paused;
  } catch {
    return false;
  }
}

export function DateTime({ label, value, change }: { label: string; value: string; change: (to: string) => void }) {
  return (
    <Field.Root required>
      <Field.Label>{label} (UTC)</Field.Label>
      <Input onChange={(event) => change(event.target.value)} step="1" type="datetime-local" value={value} />
    </Field.Root>
  );
}
