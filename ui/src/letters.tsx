// Dead letters of a loader: the records that it has refused, what became of each, and what a person does with them.

import { Button, Checkbox, Field, Flex, Heading, Input, Stack, Text } from "@chakra-ui/react";
import { useState } from "react";

import { RunDag } from "./actions";
import { usePolled } from "./data";
import type { Letter, LetterPage, Rights } from "./messages";
import { Figure, Fresh, LongTable, State } from "./parts";
import { count, instant } from "./words";

export function DeadLetters({ loader, rights, back }: { loader: string; rights: Rights | null; back: () => void }) {
  const [reason, setReason] = useState("");
  const [state, setState] = useState("");
  const asked = new URLSearchParams({ reason, state });
  const path = `rtolap/page/loaders/${encodeURIComponent(loader)}/dead-letters?${asked.toString()}`;
  const polled = usePolled<LetterPage>(path, 5000);
  return (
    <Stack gap={4}>
      <Flex align="center" gap={3} wrap="wrap">
        <Button onClick={back} size="sm" variant="ghost">
          ← All loaders
        </Button>
        <Heading as="h2" overflowWrap="anywhere" size="lg">
          {`Dead letters of ${loader}`}
        </Heading>
      </Flex>
      <Flex gap={3} wrap="wrap">
        <Choice change={setState} label="In state" of={STATES} value={state} />
        <Choice change={setReason} label="Refused for" of={withChosen(polled.data?.reasons ?? {}, reason)} value={reason} />
      </Flex>
      <Fresh of={polled}>
        {(data) => (
          <Stack gap={3}>
            <Actions loader={loader} reasons={Object.keys(data.reasons)} rights={rights} />
            <Flex gap={3} wrap="wrap">
              {Object.entries(data.counts).map(([state, letters]) => (
                <Figure key={state} label={`Letters ${state}`} value={count(letters)} />
              ))}
            </Flex>
            <Flex gap={3} wrap="wrap">
              {Object.entries(data.reasons).map(([each, letters]) => (
                <Figure key={each} label={`Refused for ${each}`} value={count(letters)} />
              ))}
            </Flex>
            {data.letters.length === 0 ? <Text>There is no such dead letter.</Text> : null}
            {data.cut ? <Text>These are the newest {count(data.letters.length)}; there are older ones.</Text> : null}
            <LongTable
              cells={(row) => ofLetter(data.letters[row]!)}
              columns={["Partition", "Offset", "State", "Reason", "Detail", "Record", "Batch", "Replayed as", "By", "At", "Note"]}
              heightPx={520}
              idOf={(row) => `${data.letters[row]!.partition} ${data.letters[row]!.offset}`}
              label="Dead letters"
              rows={data.letters.length}
            />
          </Stack>
        )}
      </Fresh>
    </Stack>
  );
}

const STATES = ["OPEN", "REPLAYING", "REPLAYED", "DROPPED", "SUPERSEDED", "UNCERTAIN", "PENDING", "NOT_OPEN", "OF_BATCH", "UNKNOWN"];

// The reason that is chosen stays a choice, though no letter may have it while others are read.
function withChosen(reasons: Record<string, number>, chosen: string): string[] {
  return [...new Set([...Object.keys(reasons), ...(chosen ? [chosen] : [])])].sort();
}

function Choice({ label, of, value, change }: { label: string; of: string[]; value: string; change: (to: string) => void }) {
  return (
    <select aria-label={label} onChange={(event) => change(event.target.value)} value={value}>
      <option value="">{label}: any</option>
      {of.map((each) => (
        <option key={each} value={each}>
          {each}
        </option>
      ))}
    </select>
  );
}

function ofLetter(each: Letter) {
  return [
    each.partition < 0 ? "" : each.partition,
    each.offset,
    <State key="state" of={each.state} />,
    each.reason,
    each.detail,
    each.value === null ? "(no value)" : each.value,
    each.batch,
    each.replay,
    each.who,
    each.at_ms === null ? "" : instant(each.at_ms),
    each.note,
  ];
}

function Actions({ loader, reasons, rights }: { loader: string; reasons: string[]; rights: Rights | null }) {
  const [reason, setReason] = useState("");
  const [places, setPlaces] = useState("");
  const [why, setWhy] = useState("");
  const [outOfOrder, setOutOfOrder] = useState(false);
  const dagId = "rtolap_dead_letters";
  if (!rights?.may_start.includes(dagId)) return null;
  const chosen = (
    <>
      <Field.Root>
        <Field.Label>Only those refused for</Field.Label>
        <select aria-label="Reason" onChange={(event) => setReason(event.target.value)} value={reason}>
          <option value="">any reason</option>
          {reasons.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </Field.Root>
      <Field.Root>
        <Field.Label>Only these places, as PARTITION/OFFSET with commas</Field.Label>
        <Input onChange={(event) => setPlaces(event.target.value)} placeholder="all" value={places} />
      </Field.Root>
    </>
  );
  return (
    <Flex gap={3} wrap="wrap">
      <RunDag
        action={{
          dagId,
          label: "Replay",
          title: `Load the open dead letters of ${loader}`,
          explanation:
            "Each is loaded once, by the loader's present definition, however often this is started. What is refused again stays open.",
          confirm: loader,
          conf: () => ({ loader, action: "replay", reason, places, out_of_order: outOfOrder }),
          children: (
            <>
              {chosen}
              <Checkbox.Root checked={outOfOrder} onCheckedChange={(to: { checked: unknown }) => setOutOfOrder(to.checked === true)}>
                <Checkbox.HiddenInput />
                <Checkbox.Control />
                <Checkbox.Label>Also where an older row takes the place of a newer one</Checkbox.Label>
              </Checkbox.Root>
            </>
          ),
        }}
        rights={rights}
      />
      <RunDag
        action={{
          dagId,
          label: "Drop",
          title: `Give the open dead letters of ${loader} up`,
          explanation: "They are never loaded after this. They stay in their topic. This cannot be undone.",
          confirm: loader,
          conf: () => ({ loader, action: "drop", reason, places, why }),
          children: (
            <>
              {chosen}
              <Field.Root>
                <Field.Label>Why, which is kept</Field.Label>
                <Input onChange={(event) => setWhy(event.target.value)} value={why} />
              </Field.Root>
            </>
          ),
        }}
        rights={rights}
      />
    </Flex>
  );
}
