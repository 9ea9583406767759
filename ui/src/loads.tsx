import { Alert, Button, Flex, Heading, Input, Stack, Text } from "@chakra-ui/react";
import { type FormEvent, useState } from "react";

import { usePolled } from "./data";
import type { ErrorPage, Load, LoadList, Loads, Rights, StoredPartition, StoredTablePage, TabletReplica } from "./messages";
import { Figure, Fresh, LongTable, Section, State } from "./parts";
import { behind, bytes, count, duration, instant } from "./words";

// `mayAsk`: rejected rows are data, which only who may ask statements may see.
export function LoadsView({ rights }: { rights: Rights | null }) {
  const [table, setTable] = useState<{ db: string; name: string } | null>(null);
  return table ? (
    <OneTable back={() => setTable(null)} db={table.db} name={table.name} />
  ) : (
    <AllTables choose={(db, name) => setTable({ db, name })} mayAsk={rights?.may_ask ?? false} />
  );
}

function AllTables({ choose, mayAsk }: { choose: (db: string, name: string) => void; mayAsk: boolean }) {
  const polled = usePolled<Loads>("rtolap/page/loads", 5000);
  return (
    <Fresh of={polled}>
      {(data) => (
        <Stack gap={6}>
          <Section title="Stored tables">
            {data.tables.length === 0 ? <Text>There are no stored tables.</Text> : null}
            <LongTable
              cells={(row) => {
                const each = data.tables[row]!;
                return [
                  <Button height="auto" key="name" minH="0" onClick={() => choose(each.db, each.name)} px={0} size="xs" variant="plain">
                    {`${each.db}.${each.name}`}
                  </Button>,
                  each.model,
                  count(each.partitions),
                  instant(each.created_ms),
                ];
              }}
              columns={["Table", "Model", "Partitions", "Created"]}
              heightPx={300}
              idOf={(row) => `${data.tables[row]!.db}.${data.tables[row]!.name}`}
              label="Stored tables"
              rows={data.tables.length}
            />
          </Section>
          <Section title="Storage nodes">
            {data.nodes_error ? (
              <Alert.Root mb={2} status="warning">
                <Alert.Indicator />
                <Alert.Title>Nodes and moves of replicas are not known: {data.nodes_error}</Alert.Title>
              </Alert.Root>
            ) : (
              <LongTable
                cells={(row) => {
                  const each = data.nodes[row]!;
                  return [each.name, <State key="state" of={each.state} />, count(each.replicas), bytes(each.held_bytes)];
                }}
                columns={["Node", "State", "Replicas", "Held"]}
                heightPx={220}
                idOf={(row) => data.nodes[row]!.name}
                label="Storage nodes"
                rows={data.nodes.length}
              />
            )}
          </Section>
          {data.moves.length === 0 ? null : (
            <Section title="Replicas that move">
              <LongTable
                cells={(row) => {
                  const each = data.moves[row]!;
                  const state = <State key="state" of={each.state.toUpperCase()} />;
                  return [each.tablet, each.from_node || "one more", each.to_node, each.reason, state];
                }}
                columns={["Tablet", "From", "To", "Why", "State"]}
                heightPx={220}
                idOf={(row) => `${data.moves[row]!.tablet} ${data.moves[row]!.to_node}`}
                label="Replicas that move"
                rows={data.moves.length}
              />
            </Section>
          )}
          <Section title="Loads">
            {data.databases.length === 0 ? <Text>There is no database.</Text> : <Search databases={data.databases} mayAsk={mayAsk} />}
          </Section>
        </Stack>
      )}
    </Fresh>
  );
}

function OneTable({ db, name, back }: { db: string; name: string; back: () => void }) {
  const path = `rtolap/page/loads/tables/${encodeURIComponent(db)}/${encodeURIComponent(name)}`;
  const polled = usePolled<StoredTablePage>(path, 5000);
  return (
    <Stack gap={4}>
      <Flex align="center" gap={3} wrap="wrap">
        <Button onClick={back} size="sm" variant="ghost">
          ← All stored tables
        </Button>
        <Heading as="h2" overflowWrap="anywhere" size="lg">
          {`${db}.${name}`}
        </Heading>
      </Flex>
      <Fresh of={polled}>
        {(data) => (
          <Stack gap={6}>
            <LongTable
              cells={(row) => ofPartition(data.partitions[row]!)}
              columns={["Partition", "Health", "Tablets", "Replicas up to date", "Visible", "Committed", "Not readable"]}
              heightPx={360}
              idOf={(row) => data.partitions[row]!.name}
              label="Partitions of the table"
              rows={data.partitions.length}
            />
            <Compaction data={data} />
          </Stack>
        )}
      </Fresh>
    </Stack>
  );
}

// What compaction has done and has to do, by replica: each node compacts its own.
function Compaction({ data }: { data: StoredTablePage }) {
  const sum = (of: (each: TabletReplica) => number) => data.replicas.reduce((total, each) => total + of(each), 0);
  return (
    <Section title="Compaction">
      <Stack gap={3}>
        {Object.entries(data.missing).map(([node, why]) => (
          <Alert.Root key={node} status="warning">
            <Alert.Indicator />
            <Alert.Title>{node ? `Replicas on node ${node} are not known: ${why}` : `Replicas are not known: ${why}`}</Alert.Title>
          </Alert.Root>
        ))}
        <Flex gap={3} wrap="wrap">
          <Figure label="Bytes of all replicas" value={bytes(sum((each) => each.bytes))} />
          <Figure label="Files" value={count(sum((each) => each.files))} />
          <Figure label="Files to compact" value={count(sum((each) => each.pending_files))} />
          <Figure label="Compactions that run" value={count(sum((each) => (each.compacting_since_ms === null ? 0 : 1)))} />
          <Figure label="Replicas with a problem" value={count(sum((each) => (each.problem ? 1 : 0)))} />
        </Flex>
        <LongTable
          cells={(row) => ofReplica(data.replicas[row]!, data.now_ms)}
          columns={["Partition", "Bucket", "Node", "Compaction", "To compact", "Rowsets", "Files", "Rows", "Bytes", "Version", "Last ended", "Problem"]}
          heightPx={420}
          idOf={(row) => `${data.replicas[row]!.partition} ${data.replicas[row]!.bucket} ${data.replicas[row]!.node}`}
          label="Replicas of tablets"
          rows={data.replicas.length}
        />
      </Stack>
    </Section>
  );
}

function ofReplica(each: TabletReplica, nowMs: number) {
  return [
    each.partition,
    each.bucket,
    each.node,
    each.problem ? (
      <State key="state" of="PROBLEM" />
    ) : each.compacting_since_ms !== null ? (
      `runs for ${duration(Math.max(0, nowMs - each.compacting_since_ms))}`
    ) : each.pending_files ? (
      "waits"
    ) : (
      "nothing to do"
    ),
    count(each.pending_files),
    count(each.rowsets),
    count(each.files),
    count(each.rows),
    bytes(each.bytes),
    each.version,
    each.compacted_ms === null ? "not since the node started" : behind(nowMs, each.compacted_ms),
    each.problem,
  ];
}

function ofPartition(each: StoredPartition) {
  return [
    each.name,
    <State key="health" of={each.health} />,
    count(each.tablets),
    `${count(each.fresh)} of ${count(each.replicas)}`,
    each.visible_version,
    each.committed_version,
    each.unreadable.length ? `buckets ${each.unreadable.join(", ")}` : "",
  ];
}

// Asked for when the form is sent, and from then on again and again: each keystroke would be a search.
function Search({ databases, mayAsk }: { databases: string[]; mayAsk: boolean }) {
  const [db, setDb] = useState("");
  const [label, setLabel] = useState("");
  const [asked, setAsked] = useState<{ db: string; label: string } | null>(null);
  const shownDb = databases.includes(db) ? db : databases[0]!;
  const find = (event: FormEvent) => {
    event.preventDefault();
    setAsked({ db: shownDb, label });
  };
  return (
    <Stack gap={3}>
      <form onSubmit={find}>
        <Flex gap={3} wrap="wrap">
          <select aria-label="Database" onChange={(event) => setDb(event.target.value)} value={shownDb}>
            {databases.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
          <Input
            aria-label="Part of a label"
            maxW="24rem"
            onChange={(event) => setLabel(event.target.value)}
            placeholder="Part of a label; empty for all"
            value={label}
          />
          <Button size="sm" type="submit">
            Find loads
          </Button>
        </Flex>
      </form>
      {asked ? <Found db={asked.db} key={`${asked.db} ${asked.label}`} label={asked.label} mayAsk={mayAsk} /> : null}
    </Stack>
  );
}

function Found({ db, label, mayAsk }: { db: string; label: string; mayAsk: boolean }) {
  const [errorsOf, setErrorsOf] = useState("");
  return errorsOf ? (
    <ErrorRows back={() => setErrorsOf("")} db={db} label={errorsOf} />
  ) : (
    <FoundLoads choose={mayAsk ? setErrorsOf : null} db={db} label={label} />
  );
}

const ERROR_ROWS_MAX = 100; // of one answer

// Rejected rows of a load, a page at a time, of all reasons or of one.
function ErrorRows({ db, label, back }: { db: string; label: string; back: () => void }) {
  const [reason, setReason] = useState("");
  const [first, setFirst] = useState(0);
  const asked = new URLSearchParams({ label, reason, first: String(first) });
  const polled = usePolled<ErrorPage>(`rtolap/page/loads/errors/${encodeURIComponent(db)}?${asked.toString()}`, 30_000);
  const choose = (to: string) => {
    setReason(to);
    setFirst(0);
  };
  return (
    <Stack gap={3}>
      <Flex align="center" gap={3} wrap="wrap">
        <Button onClick={back} size="sm" variant="ghost">
          ← Loads
        </Button>
        <Heading as="h4" overflowWrap="anywhere" size="sm">
          {`Rejected rows of ${label}`}
        </Heading>
      </Flex>
      <Fresh of={polled}>
        {(data) => (
          <Stack gap={3}>
            <Flex align="center" gap={3} wrap="wrap">
              <select aria-label="Rejected for" onChange={(event) => choose(event.target.value)} value={reason}>
                <option value="">any reason</option>
                {data.reasons.map((each) => (
                  <option key={each.reason} value={each.reason}>
                    {`${each.reason} (${count(each.rows)})`}
                  </option>
                ))}
              </select>
              <Button disabled={first === 0} onClick={() => setFirst(Math.max(0, first - ERROR_ROWS_MAX))} size="sm" variant="outline">
                Earlier rows
              </Button>
              <Button
                disabled={data.first + data.rows.length >= data.total}
                onClick={() => setFirst(first + ERROR_ROWS_MAX)}
                size="sm"
                variant="outline"
              >
                Later rows
              </Button>
              <Text>
                {data.rows.length ? `Rows ${count(data.first + 1)} to ${count(data.first + data.rows.length)} of ${count(data.total)}` : "No such rows"}
                {data.left_out ? `; ${count(data.left_out)} more were rejected and not kept` : ""}
              </Text>
            </Flex>
            <LongTable
              cells={(row) => [data.first + row + 1, data.rows[row]!.reason, data.rows[row]!.row]}
              columns={["Number", "Why", "Row as it came"]}
              idOf={(row) => data.first + row}
              label="Rejected rows"
              rows={data.rows.length}
            />
          </Stack>
        )}
      </Fresh>
    </Stack>
  );
}

function FoundLoads({ db, label, choose }: { db: string; label: string; choose: ((label: string) => void) | null }) {
  const path = `rtolap/page/loads/transactions/${encodeURIComponent(db)}?label=${encodeURIComponent(label)}`;
  const polled = usePolled<LoadList>(path, 5000);
  return (
    <Fresh of={polled}>
      {(data) => (
        <Stack gap={3}>
          <Flex gap={3} wrap="wrap">
            {Object.entries(data.states).map(([state, loads]) => (
              <Figure key={state} label={`Loads ${state}`} value={count(loads)} />
            ))}
          </Flex>
          {data.loads.length === 0 ? <Text>No load has such a label.</Text> : null}
          {data.cut ? <Text>These are the latest {count(data.loads.length)}; there may be older ones.</Text> : null}
          <LongTable
            cells={(row) => ofLoad(data.loads[row]!, choose)}
            columns={["Label", "State", "Tables", "Began", "Took", "Rows", "Rejected rows", "Why it failed", "Transaction"]}
            idOf={(row) => data.loads[row]!.txn_id}
            label="Loads"
            rows={data.loads.length}
          />
        </Stack>
      )}
    </Fresh>
  );
}

function ofLoad(each: Load, choose: ((label: string) => void) | null) {
  return [
    each.label,
    <State key="state" of={each.state} />,
    each.tables.join(", "),
    instant(each.began_ms),
    each.took_ms === null ? "runs" : duration(each.took_ms),
    count(each.rows),
    each.has_errors && choose ? (
      <Button aria-label={`Rejected rows of ${each.label}`} height="auto" key="errors" minH="0" onClick={() => choose(each.label)} px={0} size="xs" variant="plain">
        Show
      </Button>
    ) : each.has_errors ? (
      "yes"
    ) : (
      ""
    ),
    each.reason,
    each.txn_id,
  ];
}
