// Statements of a person: written, run, cancelled, shown as rows and as pictures, and downloaded.

import { Alert, Box, Button, Flex, Stack, Text } from "@chakra-ui/react";
import { useEffect, useRef, useState } from "react";

import {
  type Answer,
  type KnownTables,
  type PastStatements,
  type Value,
  arrowFile,
  ask,
  csvFile,
  save,
  textOf,
} from "./asking";
import { Chart } from "./chart";
import { Fresh, LongTable, Section, State } from "./parts";
import { usePolled } from "./data";
import { Editor } from "./editor";
import type { Rights } from "./messages";
import { PlanPicture, isPlan } from "./plan";
import { count, duration } from "./words";

const SHOWN_LETTERS_MAX = 300; // of a value in the table; files have all of it
const LOGGED_MS = 1500; // until the query log knows how a cancelled statement has ended

interface Shown {
  sql: string;
  answer: Answer;
  tookMs: number;
}

export function AskView({ rights }: { rights: Rights | null }) {
  if (rights === null) return <Text>Loading …</Text>;
  if (!rights.may_ask) {
    return <Text>You may not ask: it takes the right to start runs of rtolap_segment_build.</Text>;
  }
  return <Asking />;
}

function Asking() {
  const [sql, setSql] = useState("");
  const [shown, setShown] = useState<Shown | null>(null);
  const [problem, setProblem] = useState("");
  const [note, setNote] = useState("");
  const [startedMs, setStartedMs] = useState<number | null>(null);
  const running = useRef<AbortController | null>(null);
  const token = useRef("");
  const catalogue = usePolled<KnownTables>("rtolap/page/ask/catalogue", 60_000);
  const past = usePolled<PastStatements>("rtolap/page/ask/history", 10_000);

  useEffect(() => () => running.current?.abort(), []); // whoever leaves the view cancels

  // Run it, one at a time. `work` shows what it has found, or saves it.
  async function run(work: (signal: AbortSignal) => Promise<void>) {
    if (running.current) return;
    const controller = new AbortController();
    running.current = controller;
    setStartedMs(Date.now());
    setProblem("");
    setNote("");
    try {
      await work(controller.signal);
    } catch (error) {
      if (controller.signal.aborted) setNote("Cancelled: the query service ends the statement.");
      else setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      running.current = null;
      setStartedMs(null);
      past.again();
      if (controller.signal.aborted) setTimeout(past.again, LOGGED_MS);
    }
  }

  function show(statement: string) {
    void run(async (signal) => {
      setShown(null);
      const began = performance.now();
      const answer = await ask(statement, token.current, signal);
      token.current = answer.session_token;
      setShown({ sql: statement, answer, tookMs: performance.now() - began });
    });
  }

  const explain = (word: string) => show(/^\s*explain\b/i.test(sql) ? sql : `${word} ${sql}`);
  const idle = startedMs === null && sql.trim() !== "";
  // Buttons stand above the text: names that are offered below it would move them away from a click.
  return (
    <Stack gap={4}>
      {catalogue.problem ? <Text>Names are not completed: {catalogue.problem}</Text> : null}
      {catalogue.data?.cut ? <Text>Names of some tables are not completed: there are too many.</Text> : null}
      <Flex align="center" gap={3} wrap="wrap">
        <Button disabled={!idle} onClick={() => show(sql)} size="sm">
          Run
        </Button>
        <Button disabled={!idle} onClick={() => explain("EXPLAIN")} size="sm" variant="outline">
          Explain
        </Button>
        <Button disabled={!idle} onClick={() => explain("EXPLAIN ANALYZE")} size="sm" variant="outline">
          Explain analyze
        </Button>
        {startedMs === null ? null : (
          <Button colorPalette="red" onClick={() => running.current?.abort()} size="sm" variant="outline">
            Cancel
          </Button>
        )}
        <Box aria-live="polite" role="status">
          {startedMs === null ? <Text>{note}</Text> : <Running sinceMs={startedMs} />}
        </Box>
      </Flex>
      <Editor change={setSql} run={() => idle && show(sql)} tables={catalogue.data?.tables ?? []} value={sql} />
      {problem ? (
        <Alert.Root role="alert" status="error">
          <Alert.Indicator />
          <Alert.Title overflowWrap="anywhere">{problem}</Alert.Title>
        </Alert.Root>
      ) : null}
      {shown ? (
        <Result
          arrow={() => void run(async (signal) => save(await arrowFile(shown.sql, token.current, signal), "answer.arrows"))}
          idle={startedMs === null}
          of={shown}
        />
      ) : null}
      <Section title="Your statements">
        <Fresh of={past}>{(data) => <Past choose={setSql} of={data} />}</Fresh>
      </Section>
    </Stack>
  );
}

function Running({ sinceMs }: { sinceMs: number }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const ticking = setInterval(() => tick((value) => value + 1), 1000);
    return () => clearInterval(ticking);
  }, []);
  return <Text>Running for {duration(Date.now() - sinceMs)} …</Text>;
}

function Result({ of, arrow, idle }: { of: Shown; arrow: () => void; idle: boolean }) {
  const { answer } = of;
  const rows = answer.rows.length;
  const some = answer.cut ? ` (the first ${count(rows)} rows)` : "";
  return (
    <Section title="Answer">
      <Stack gap={3}>
        {answer.warnings.map((warning) => (
          <Alert.Root key={warning.message} status={warning.level === "Note" ? "info" : "warning"}>
            <Alert.Indicator />
            <Alert.Title overflowWrap="anywhere">{warning.message}</Alert.Title>
          </Alert.Root>
        ))}
        <Flex align="center" gap={3} wrap="wrap">
          <Text data-testid="rows">
            {count(rows)} {rows === 1 ? "row" : "rows"} in {duration(of.tookMs)}.
            {answer.cut ? ` These are the first ${count(answer.rows_max)}; there are more.` : ""}
          </Text>
          <Button onClick={() => save(csvFile(answer), "answer.csv")} size="xs" variant="outline">
            {`CSV${some}`}
          </Button>
          <Button disabled={!idle} onClick={arrow} size="xs" variant="outline">
            {`Arrow${some}`}
          </Button>
        </Flex>
        {isPlan(answer) ? <PlanPicture of={answer} /> : <Chart of={answer} />}
        <LongTable
          cells={(row) => answer.rows[row]!.map((value, column) => <Cell key={column} of={value} />)}
          columns={answer.columns.map((column) => column.name)}
          idOf={(row) => row}
          label="Rows"
          rows={rows}
        />
      </Stack>
    </Section>
  );
}

function Cell({ of }: { of: Value }) {
  if (of === null) {
    return (
      <Text as="span" color="fg.muted" data-null fontStyle="italic">
        NULL
      </Text>
    );
  }
  const text = textOf(of);
  return <>{text.length > SHOWN_LETTERS_MAX ? `${text.slice(0, SHOWN_LETTERS_MAX)}…` : text}</>;
}

function Past({ of, choose }: { of: PastStatements; choose: (sql: string) => void }) {
  const { statements } = of;
  if (statements.length === 0) return <Text>The query log has no statement of yours.</Text>;
  return (
    <LongTable
      cells={(row) => {
        const each = statements[row]!;
        return [
          each.started_at.slice(0, 19),
          <State key="outcome" of={each.outcome} />,
          <Button height="auto" key="sql" minH="0" onClick={() => choose(each.sql)} px={0} size="xs" variant="plain">
            {each.sql.length > 100 ? `${each.sql.slice(0, 99)}…` : each.sql || "(not kept)"}
          </Button>,
          count(each.rows),
          duration(each.elapsed_ms),
          each.error,
        ];
      }}
      columns={["Began (UTC)", "Outcome", "Statement", "Rows", "Took", "Error"]}
      heightPx={260}
      idOf={(row) => `${statements[row]!.started_at} ${statements[row]!.sql}`}
      label="Your statements"
      rows={statements.length}
    />
  );
}
