// Questions of Airflow's tasks, asked of Airflow itself, which shows each user what that user may see, and their answers, which go the way of its own form.

import { Alert, Button, Dialog, Field, Flex, Input, Link, Portal, Stack, Text } from "@chakra-ui/react";
import { type ReactNode, useState } from "react";

import { CONFLICT, Refused, request, usePolled } from "./data";
import { runAddress, taskAddress } from "./links";
import type { Rights } from "./messages";
import { Fresh } from "./parts";
import { behind } from "./words";

interface AskedTask {
  dag_id: string;
  dag_run_id: string;
  task_id: string;
  map_index: number;
  rendered_fields: Record<string, unknown>;
}

export interface Question {
  subject: string;
  body: string | null;
  options: string[];
  params: Record<string, { value: unknown; description: string | null; schema: { title?: string } }>;
  created_at: string;
  task_instance: AskedTask;
  responded_by_user: { id: string; name: string } | null;
  chosen_options: string[] | null;
}

interface Chosen {
  question: Question;
  option: string;
}

// What an answer does, in the words of the page, by task and option.
const WORDS: Record<string, Record<string, string>> = {
  approve_back: { Approve: "Undo the move", Reject: "Keep the move" },
};

function wordsOf(question: Question, option: string): string {
  return WORDS[question.task_instance.task_id]?.[option] ?? option;
}

function detailPath(task: AskedTask): string {
  const run = `api/v2/dags/${encodeURIComponent(task.dag_id)}/dagRuns/${encodeURIComponent(task.dag_run_id)}`;
  return `${run}/taskInstances/${encodeURIComponent(task.task_id)}/${task.map_index}/hitlDetails`;
}

export function keyOf(question: Question): string {
  const task = question.task_instance;
  return `${task.dag_id} ${task.dag_run_id} ${task.task_id} ${task.map_index}`;
}

// The open questions of DAGs whose ids begin so. The dialog stays while somebody else answers, and says so then.
export function Questions({
  dags,
  rights,
  children,
}: {
  dags: string;
  rights: Rights | null;
  children: (questions: Question[], answers: (question: Question) => ReactNode) => ReactNode;
}) {
  const open = `response_received=false&state=deferred&state=awaiting_input&dag_id_pattern=${encodeURIComponent(dags)}&limit=100`;
  const polled = usePolled<{ hitl_details: Question[] }>(`api/v2/dags/~/dagRuns/~/hitlDetails?${open}`, 5000);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const [answered, setAnswered] = useState<{ chosen: Chosen; by: string } | null>(null);

  function answers(question: Question): ReactNode {
    if (!rights?.may_answer.includes(question.task_instance.dag_id)) return null;
    return (
      <Flex gap={2} wrap="wrap">
        {question.options.map((option) => (
          <Button
            colorPalette={option === "Reject" ? "gray" : "blue"}
            key={option}
            onClick={() => setChosen({ question, option })}
            size="sm"
            variant="outline"
          >
            {wordsOf(question, option)}
          </Button>
        ))}
      </Flex>
    );
  }

  return (
    <Stack gap={3}>
      {answered ? <Recorded by={answered.by} chosen={answered.chosen} /> : null}
      <Fresh of={polled}>
        {(data) =>
          children(
            data.hitl_details.filter((each) => !answered || keyOf(each) !== keyOf(answered.chosen.question)),
            answers,
          )
        }
      </Fresh>
      {chosen ? (
        <AnswerDialog
          chosen={chosen}
          close={() => setChosen(null)}
          done={(by) => {
            setAnswered({ chosen, by });
            setChosen(null);
            polled.again();
          }}
          key={`${keyOf(chosen.question)} ${chosen.option}`}
        />
      ) : null}
    </Stack>
  );
}

function Recorded({ chosen, by }: { chosen: Chosen; by: string }) {
  const task = chosen.question.task_instance;
  return (
    <Alert.Root role="status" status="success">
      <Alert.Indicator />
      <Alert.Title overflowWrap="anywhere">
        {wordsOf(chosen.question, chosen.option)} is recorded, as the answer of {by}: <Link href={runAddress(task.dag_id, task.dag_run_id)}>{task.dag_run_id}</Link>
      </Alert.Title>
    </Alert.Root>
  );
}

function AnswerDialog({ chosen, close, done }: { chosen: Chosen; close: () => void; done: (by: string) => void }) {
  const { question, option } = chosen;
  const [form, setForm] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const path = detailPath(question.task_instance);

  async function send() {
    setBusy(true);
    setProblem("");
    try {
      const body = { chosen_options: [option], params_input: form };
      const said = await request<{ responded_by: { name: string } }>(path, body, undefined, "PATCH");
      done(said.responded_by.name);
    } catch (error) {
      const taken = error instanceof Refused && error.status === CONFLICT;
      setOver(taken);
      setProblem(taken ? await before(path) : error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  }

  return (
    <Dialog.Root onOpenChange={(to: { open: boolean }) => (to.open ? null : close())} open>
      <Portal>
        <Dialog.Backdrop />
        <Dialog.Positioner>
          <Dialog.Content>
            <Dialog.Header>
              <Dialog.Title overflowWrap="anywhere">
                {wordsOf(question, option)}: {question.subject}
              </Dialog.Title>
            </Dialog.Header>
            <Dialog.Body>
              <Stack gap={4}>
                <Text overflowWrap="anywhere" whiteSpace="pre-wrap">
                  {question.body ?? ""}
                </Text>
                {Object.entries(question.params).map(([name, param]) => (
                  <Field.Root key={name}>
                    <Field.Label>{param.schema.title ?? name}</Field.Label>
                    <Input onChange={(event) => setForm({ ...form, [name]: event.target.value })} value={form[name] ?? ""} />
                    {param.description ? <Field.HelperText>{param.description}</Field.HelperText> : null}
                  </Field.Root>
                ))}
                {problem ? (
                  <Alert.Root role="alert" status="error">
                    <Alert.Indicator />
                    <Alert.Title>{problem}</Alert.Title>
                  </Alert.Root>
                ) : null}
              </Stack>
            </Dialog.Body>
            <Dialog.Footer>
              <Button onClick={close} variant="ghost">
                {over ? "Close" : "Cancel"}
              </Button>
              <Button colorPalette="blue" disabled={busy || over} onClick={() => void send()}>
                Answer
              </Button>
            </Dialog.Footer>
          </Dialog.Content>
        </Dialog.Positioner>
      </Portal>
    </Dialog.Root>
  );
}

// Who was first, in words.
async function before(path: string): Promise<string> {
  try {
    const known = await request<Question>(path);
    if (known.responded_by_user) {
      return `${known.responded_by_user.name} has answered before: ${(known.chosen_options ?? []).join(", ")}. Your answer counts no more.`;
    }
  } catch {
    // Who it was is not known, and that somebody was is.
  }
  return "Somebody has answered before. Your answer counts no more.";
}

// A question with its text and its answers.
export function OneQuestion({ each, answers, children }: { each: Question; answers: ReactNode; children?: ReactNode }) {
  const task = each.task_instance;
  return (
    <Stack aria-label={each.subject} as="article" borderRadius="md" borderWidth="1px" gap={2} p={4}>
      <Text fontWeight="semibold">{each.subject}</Text>
      <Text>
        {task.dag_id}, asked {behind(Date.now(), Date.parse(each.created_at))}
      </Text>
      <Text overflowWrap="anywhere" whiteSpace="pre-wrap">
        {each.body ?? ""}
      </Text>
      {children}
      {answers}
      <Link href={`${taskAddress(task.dag_id, task.dag_run_id, task.task_id, task.map_index)}/required_actions`}>Answer in Airflow</Link>
    </Stack>
  );
}

// The result of an earlier task of a run, as Airflow keeps it.
export async function resultOf<T>(dagId: string, runId: string, taskId: string): Promise<T> {
  const run = `api/v2/dags/${encodeURIComponent(dagId)}/dagRuns/${encodeURIComponent(runId)}`;
  const found = await request<{ value: unknown }>(`${run}/taskInstances/${taskId}/xcomEntries/return_value`);
  return (typeof found.value === "string" ? JSON.parse(found.value) : found.value) as T;
}
