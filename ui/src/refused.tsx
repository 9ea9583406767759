// Records that a cube's table has refused, the newest first: see plugins/rtolap/airflow/page/refused.py.

import { Button, Flex, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { request } from "./data";
import { LongTable } from "./parts";
import { Warning } from "./share";
import { count, instant } from "./words";

interface Refused {
  now_ms: number;
  topic: string;
  records: { at_ms: number; partition: number; offset: number; reason: string; detail: string; value: string | null }[];
  older: string;
}

const SHOWN_MAX = 2000;

// Asked for when somebody wants to see them: they are read out of Kafka.
export function RefusedRecords({ cube }: { cube: string }) {
  const [records, setRecords] = useState<Refused["records"]>([]);
  const [last, setLast] = useState<Refused | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);

  async function ask(before: string) {
    setBusy(true);
    setProblem("");
    try {
      const query = before ? `?before=${encodeURIComponent(before)}` : "";
      const found = await request<Refused>(`rtolap/page/cubes/${encodeURIComponent(cube)}/refused${query}`);
      const kept = before ? records : [];
      const seen = new Set(kept.map((each) => `${each.partition} ${each.offset}`));
      setRecords([...kept, ...found.records.filter((each) => !seen.has(`${each.partition} ${each.offset}`))]);
      setLast(found);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  }

  const isFull = records.length >= SHOWN_MAX;
  return (
    <Stack align="stretch" gap={3}>
      <Flex gap={3} wrap="wrap">
        <Button disabled={busy} onClick={() => void ask("")} size="xs" variant="outline">
          {last ? "Show the newest again" : "Show refused records"}
        </Button>
        {last?.older && !isFull ? (
          <Button disabled={busy} onClick={() => void ask(last.older)} size="xs" variant="outline">
            Older ones
          </Button>
        ) : null}
      </Flex>
      {problem ? <Warning text={problem} /> : null}
      {last ? (
        <Text overflowWrap="anywhere">
          {count(records.length)} records of {last.topic}. {isFull ? "More are not shown: `rtolap dead-letters` lists them." : last.older ? "There may be older ones." : "There are no older ones."}
        </Text>
      ) : null}
      {last ? (
        <LongTable
          cells={(row) => {
            const each = records[row]!;
            return [instant(each.at_ms), each.reason, each.partition, each.offset, each.detail, each.value ?? ""];
          }}
          columns={["Refused", "Reason", "Partition", "Offset", "What is wrong", "Begin of the record"]}
          heightPx={300}
          idOf={(row) => `${records[row]!.partition} ${records[row]!.offset}`}
          label="Refused records"
          rows={records.length}
        />
      ) : null}
    </Stack>
  );
}
