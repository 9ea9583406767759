// EXPLAIN as a picture: what is read of each cube and table, by whom, and what makes the answer of it.

import { Box } from "@chakra-ui/react";

import { type Answer, textOf } from "./asking";

const BOX_WIDTH = 210;
const BOX_HEIGHT = 96;
const GAP = 34;
const LINE = 16;
const LETTERS_MAX = 29;

interface Source {
  title: string;
  items: Map<string, string>;
}

interface Plan {
  sources: Source[];
  statement: Map<string, string>;
}

export function isPlan(answer: Answer): boolean {
  return answer.columns.map((column) => column.name).join() === "item,value";
}

// Rows of a source begin with its name; those from "answered by" on are about the statement.
export function planOf(answer: Answer): Plan {
  const plan: Plan = { sources: [], statement: new Map() };
  let items = plan.statement;
  for (const [item, value] of answer.rows.map((row) => row.map((each) => (each === null ? "" : textOf(each))))) {
    if (item === "cube" || item === "stored table") {
      items = new Map();
      plan.sources.push({ title: `${item} ${value}`, items });
    } else if (item === "answered by" || item === "latest first") items = plan.statement;
    items.set(item!, value!);
  }
  return plan;
}

const listed = (text: string | undefined) => (!text || text === "none" ? 0 : text.split(", ").length);

function boxesOf({ title, items }: Source): string[][] {
  const rows = items.get("rows read") ?? items.get("rows read (estimate)");
  const fetched = items.has("fetch ms") ? [`${items.get("fetch ms")} ms`] : [];
  if (items.has("nodes send")) {
    const nodes = items.has("nodes") ? [`nodes: ${items.get("nodes")}`] : [];
    const tablets = items.has("tablets") ? [`${items.get("tablets")} tablets`] : [];
    const partitions = `${listed(items.get("partitions"))} partitions, ${listed(items.get("pruned partitions"))} left out`;
    return [[title, `sends ${items.get("nodes send")}`], [partitions, ...tablets, ...nodes], rowsRead(rows, fetched)];
  }
  const history = listed(items.get("history segments"));
  return [
    [title, `cuboid ${items.get("cuboid") ?? "none"}`],
    [
      `${history} segments of history`,
      `${listed(items.get("pruned segments"))} left out`,
      `${listed(items.get("real-time segments"))} in real time`,
      `receivers ${items.get("receivers") ?? "none"}`,
    ],
    rowsRead(rows, fetched),
  ];
}

function rowsRead(rows: string | undefined, fetched: string[]): string[] {
  return [`${rows ?? "unknown"} rows read`, ...fetched];
}

export function PlanPicture({ of }: { of: Answer }) {
  const { sources, statement } = planOf(of);
  const end = [`answered by ${statement.get("answered by") ?? "unknown"}`];
  if (statement.has("result rows")) end.push(`${statement.get("result rows")} rows`);
  if (statement.has("elapsed ms")) end.push(`${statement.get("elapsed ms")} ms`);
  const lines = sources.map(boxesOf);
  const height = Math.max(1, lines.length) * (BOX_HEIGHT + GAP);
  const across = BOX_WIDTH + GAP;
  const middle = (height - GAP - BOX_HEIGHT) / 2;
  const words = [...lines.flat(), end].map((box) => box.join(", ")).join("; ");
  return (
    <Box maxW={`${4 * across}px`}>
      <svg aria-label={`Plan: ${words}`} role="img" viewBox={`0 0 ${4 * across} ${height}`} width="100%">
        {lines.map((boxes, row) => (
          <g key={row}>
            {boxes.map((box, column) => (
              <Words key={column} of={box} x={column * across} y={row * (BOX_HEIGHT + GAP)} />
            ))}
            {[1, 2].map((column) => (
              <Arrow
                from={[column * across - GAP, row * (BOX_HEIGHT + GAP) + BOX_HEIGHT / 2]}
                key={column}
                to={[column * across, row * (BOX_HEIGHT + GAP) + BOX_HEIGHT / 2]}
              />
            ))}
            <Arrow
              from={[3 * across - GAP, row * (BOX_HEIGHT + GAP) + BOX_HEIGHT / 2]}
              to={[3 * across, middle + BOX_HEIGHT / 2]}
            />
          </g>
        ))}
        <Words of={end} x={lines.length ? 3 * across : 0} y={middle} />
      </svg>
    </Box>
  );
}

function Words({ of, x, y }: { of: string[]; x: number; y: number }) {
  return (
    <g>
      <title>{of.join("\n")}</title>
      <rect fill="none" height={BOX_HEIGHT} rx={6} stroke="currentColor" width={BOX_WIDTH} x={x + 1} y={y + 1} />
      {of.map((line, number) => (
        <text
          fill="currentColor"
          key={number}
          style={{ fontSize: 12, fontWeight: number ? "normal" : "bold" }}
          x={x + 10}
          y={y + 22 + number * (LINE + 2)}
        >
          {line.length > LETTERS_MAX ? `${line.slice(0, LETTERS_MAX - 1)}…` : line}
        </text>
      ))}
    </g>
  );
}

function Arrow({ from, to }: { from: [number, number]; to: [number, number] }) {
  const head = `${to[0] - 7},${to[1] - 4} ${to[0]},${to[1]} ${to[0] - 7},${to[1] + 4}`;
  return (
    <g fill="none" stroke="currentColor">
      <line x1={from[0] + 2} x2={to[0]} y1={from[1]} y2={to[1]} />
      <polyline points={head} />
    </g>
  );
}
