// Parts that several views share.

import { Alert, Badge, Box, Heading, Stack, Table, Text } from "@chakra-ui/react";
import { type ReactNode, useRef, useState } from "react";

import type { Polled } from "./data";
import type { Problem } from "./messages";
import { duration } from "./words";

const STATES: Record<string, string> = {
  HEALTHY: "green",
  READY: "green",
  on: "green",
  RUNNING: "green",
  OPEN: "green",
  READABLE: "green",
  VISIBLE: "green",
  BEHIND: "orange",
  DRAINING: "orange",
  PAUSED: "orange",
  CHANGING: "blue",
  COMMITTED: "blue",
  COPYING: "blue",
  SWITCHED: "blue",
  RETIRING: "blue",
  PRECOMMITTED: "cyan",
  PREPARE: "cyan",
  PLANNED: "gray",
  STOPPED: "gray",
  SUCCEEDED: "gray",
  WARN: "orange",
  paused: "orange",
  REMOTE_PERSISTED: "blue",
  IMMUTABLE: "purple",
  ACTIVE: "cyan",
  off: "gray",
  ok: "green",
  abandoned: "gray",
  query_interrupted: "orange",
  running: "green",
  delivers: "green",
  waiting: "orange",
  creating: "blue",
  dropping: "blue",
  "stands by": "gray",
  "not made": "gray",
  unknown: "gray",
  SERVING: "green",
  ONLINE: "green",
  NORMAL: "green",
  SUSPECTED: "orange",
  RECOVERING: "orange",
  queued: "cyan",
  releasing: "blue",
  ended: "gray",
  pending: "gray",
  submitting: "cyan",
  copying: "blue",
  cancelling: "orange",
  REPLAYING: "blue",
  REPLAYED: "green",
  DROPPED: "gray",
  SUPERSEDED: "gray",
  NOT_OPEN: "gray",
  OF_BATCH: "gray",
  UNKNOWN: "gray",
  PENDING: "orange",
  UNCERTAIN: "orange",
};

export function State({ of }: { of: string }) {
  return (
    <Badge colorPalette={STATES[of] ?? "red"} variant="subtle">
      {of}
    </Badge>
  );
}

// A view's data, with their age; older data stay visible and say that they are.
export function Fresh<T>({ of, children }: { of: Polled<T>; children: (data: T) => ReactNode }) {
  return (
    <Stack gap={4}>
      <Box aria-live="polite" role="status">
        {of.problem ? (
          <Alert.Root status="error">
            <Alert.Indicator />
            <Alert.Content>
              <Alert.Title>{of.problem}</Alert.Title>
              {of.data === null ? null : (
                <Alert.Description>What is shown is {duration(of.ageMs)} old.</Alert.Description>
              )}
            </Alert.Content>
          </Alert.Root>
        ) : null}
      </Box>
      {of.data === null ? (
        of.problem ? null : <Text>Loading …</Text>
      ) : (
        <>
          {children(of.data)}
          <Text color="fg.muted" data-testid="age" fontSize="sm">
            {duration(of.ageMs)} old
          </Text>
        </>
      )}
    </Stack>
  );
}

export function Figure({ label, value }: { label: string; value: string }) {
  return (
    <Box borderRadius="md" borderWidth="1px" minW="9rem" px={4} py={3}>
      <Text color="fg.muted" fontSize="sm">
        {label}
      </Text>
      <Text fontSize="xl" fontWeight="semibold">
        {value}
      </Text>
    </Box>
  );
}

export function Problems({ of }: { of: Problem[] }) {
  if (of.length === 0) return <Text>No problems are known.</Text>;
  return (
    <Stack as="ul" gap={2} listStyleType="none">
      {of.map((each) => (
        <Box as="li" key={`${each.cube} ${each.receiver} ${each.what}`}>
          <Alert.Root status={each.severity}>
            <Alert.Indicator />
            <Alert.Content>
              <Alert.Title overflowWrap="anywhere">{each.what}</Alert.Title>
              <Alert.Description overflowWrap="anywhere">{each.action}</Alert.Description>
            </Alert.Content>
          </Alert.Root>
        </Box>
      ))}
    </Stack>
  );
}

export function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Box as="section" aria-label={title}>
      <Heading as="h3" mb={2} size="md">
        {title}
      </Heading>
      {children}
    </Box>
  );
}

const ROW_PX = 37;
const BEYOND = 10; // rows above and below what is seen

// A table of which only the rows that are seen are in the page, so that ten thousand are as quick as ten.
// `idOf` names what a row is about: where newer data move rows, a click meets the row that it began on, or none.
export function LongTable({
  label,
  columns,
  rows,
  cells,
  idOf,
  heightPx = 420,
}: {
  label: string;
  columns: string[];
  rows: number;
  idOf: (row: number) => string | number;
  cells: (row: number) => ReactNode[];
  heightPx?: number;
}) {
  const [first, setFirst] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const start = Math.max(0, first - BEYOND);
  const end = Math.min(rows, first + Math.ceil(heightPx / ROW_PX) + BEYOND);
  return (
    <Box
      aria-label={label}
      borderRadius="md"
      borderWidth="1px"
      maxH={`${heightPx}px`}
      onScroll={() => setFirst(Math.floor((box.current?.scrollTop ?? 0) / ROW_PX))}
      overflow="auto"
      ref={box}
      role="region"
      tabIndex={0}
    >
      <Table.Root aria-label={label} aria-rowcount={rows + 1} size="sm" stickyHeader>
        <Table.Header>
          <Table.Row aria-rowindex={1}>
            {columns.map((name, column) => (
              <Table.ColumnHeader key={column} scope="col">
                {name}
              </Table.ColumnHeader>
            ))}
          </Table.Row>
        </Table.Header>
        <Table.Body>
          {start > 0 ? <Gap columns={columns.length} rows={start} /> : null}
          {keyed(start, end, idOf).map(([row, key]) => (
            <Table.Row aria-rowindex={row + 2} height={`${ROW_PX}px`} key={key}>
              {cells(row).map((cell, column) => (
                <Table.Cell key={column} whiteSpace="nowrap">
                  {cell}
                </Table.Cell>
              ))}
            </Table.Row>
          ))}
          {end < rows ? <Gap columns={columns.length} rows={rows - end} /> : null}
        </Table.Body>
      </Table.Root>
    </Box>
  );
}

// Rows that have one id, such as a statement that was asked twice at once, are told apart by their order.
function keyed(start: number, end: number, idOf: (row: number) => string | number): [number, string][] {
  const seen = new Map<string | number, number>();
  return Array.from({ length: end - start }, (_, offset) => {
    const id = idOf(start + offset);
    const before = seen.get(id) ?? 0;
    seen.set(id, before + 1);
    return [start + offset, `${before} ${id}`];
  });
}

function Gap({ columns, rows }: { columns: number; rows: number }) {
  return (
    <Table.Row aria-hidden="true">
      <Table.Cell colSpan={columns} p={0} style={{ height: rows * ROW_PX }} />
    </Table.Row>
  );
}
