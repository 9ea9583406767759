// Number columns of an answer over its first column of times or texts, as one picture.

import { Box, Text } from "@chakra-ui/react";

import type { Answer, Value } from "./asking";
import { textOf } from "./asking";
import { count } from "./words";

const COLOURS = ["blue", "orange", "green", "purple"].map((name) => `var(--chakra-colors-${name}-500)`);
const WIDTH = 900;
const HEIGHT = 180;
const LEFT = 110;
const RIGHT = 10;
const BOTTOM = 24;
const TOP = 10;
const BARS_MAX = 60;
const POINTS_MAX = 2000;
const LABELS_MAX = 12; // of bars that are all named, in so many letters
const LABEL_LETTERS = 10;

interface Series {
  name: string;
  values: (number | null)[];
}

interface Drawn {
  kind: "bars" | "line";
  over: string;
  labels: string[];
  places: number[]; // along the picture, 0 to 1
  series: Series[];
  left: number; // rows that are not drawn
}

const isNumber = (type: string) => /^(u?int|float|double|half|decimal)/.test(type);
const isTime = (type: string) => /^(timestamp|date)/.test(type);
const isText = (type: string) => /^(large_)?string|^dictionary|^bool/.test(type);

// Return what can be drawn of an answer; null where it has no number, or nothing to draw one over.
export function drawn(answer: Answer): Drawn | null {
  const types = answer.columns.map((column) => column.type);
  const over = types.findIndex((type) => isTime(type) || isText(type));
  const numbers = types.flatMap((type, at) => (isNumber(type) && at !== over ? [at] : [])).slice(0, COLOURS.length);
  if (over < 0 || numbers.length === 0 || answer.rows.length === 0) return null;
  const kind = isTime(types[over]!) && answer.rows.length > 1 ? "line" : "bars";
  let rows = kind === "line" ? answer.rows.filter((row) => !Number.isNaN(ms(row[over]!))) : answer.rows;
  if (rows.length === 0) return null;
  if (kind === "line") rows = [...rows].sort((one, other) => ms(one[over]!) - ms(other[over]!));
  const shown = rows.slice(0, kind === "line" ? POINTS_MAX : BARS_MAX);
  const first = kind === "line" ? ms(shown[0]![over]!) : 0;
  const span = kind === "line" ? ms(shown[shown.length - 1]![over]!) - first : 0;
  return {
    kind,
    over: answer.columns[over]!.name,
    labels: shown.map((row) => (row[over] === null ? "NULL" : textOf(row[over]!))),
    places: shown.map((row, at) => (span > 0 ? (ms(row[over]!) - first) / span : (at + 0.5) / shown.length)),
    series: numbers.map((at) => ({ name: answer.columns[at]!.name, values: shown.map((row) => numeric(row[at]!)) })),
    left: answer.rows.length - shown.length,
  };
}

function ms(value: Value): number {
  return value === null ? NaN : Date.parse(/\d:\d/.test(String(value)) ? `${String(value).replace(" ", "T")}Z` : String(value));
}

function numeric(value: Value): number | null {
  const found = value === null ? NaN : Number(value);
  return Number.isFinite(found) ? found : null;
}

// A picture for each column of numbers: sums and counts have no scale in common.
export function Chart({ of }: { of: Answer }) {
  const picture = drawn(of);
  if (!picture) return <Text>There is nothing to draw: it takes a column of times or texts, and one of numbers.</Text>;
  return (
    <Box>
      {picture.series.map((series, number) => (
        <Panel colour={COLOURS[number]!} key={number} of={picture} series={series} />
      ))}
      {picture.left > 0 ? <Text fontSize="sm">{count(picture.left)} further rows are not drawn.</Text> : null}
    </Box>
  );
}

function Panel({ of: picture, series, colour }: { of: Drawn; series: Series; colour: string }) {
  const values = series.values.filter((value) => value !== null);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values) || (low < 0 ? 0 : 1);
  const y = (value: number) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const x = (place: number) => LEFT + place * (WIDTH - LEFT - RIGHT);
  const number = picture.labels.length;
  const named = number <= LABELS_MAX && picture.kind === "bars" ? picture.labels.map((_, at) => at) : [0, number - 1];
  const what = picture.kind === "line" ? "Line" : "Bars";
  const range = `from ${count(low)} to ${count(high)}`;
  return (
    <Box>
      <Text fontSize="sm">{short(series.name)}</Text>
      <svg
        aria-label={`${what} of ${series.name} over ${picture.over}: ${count(number)} rows, ${range}`}
        role="img"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        width="100%"
      >
        {picture.kind === "line" ? (
          <path
            d={path(series.values.map((value, at) => (value === null ? null : [x(picture.places[at]!), y(value)])))}
            fill="none"
            stroke={colour}
            strokeWidth={2}
          />
        ) : (
          series.values.map((value, at) => {
            if (value === null) return null;
            const room = (WIDTH - LEFT - RIGHT) / number;
            return (
              <rect
                fill={colour}
                height={Math.max(1, Math.abs(y(value) - y(0)))}
                key={at}
                width={room * 0.8}
                x={x(at / number) + room * 0.1}
                y={Math.min(y(value), y(0))}
              >
                <title>{`${picture.labels[at]}: ${value}`}</title>
              </rect>
            );
          })
        )}
        <line stroke="currentColor" x1={LEFT} x2={WIDTH - RIGHT} y1={y(0)} y2={y(0)} />
        <g fill="currentColor" style={{ fontSize: 12 }}>
          <text textAnchor="end" x={LEFT - 6} y={TOP + 8}>
            {high.toLocaleString("en-US")}
          </text>
          <text textAnchor="end" x={LEFT - 6} y={y(low) + 4}>
            {low.toLocaleString("en-US")}
          </text>
          {[...new Set(named)].map((at) => (
            <text key={at} textAnchor={anchor(picture.places[at]!)} x={x(picture.places[at]!)} y={HEIGHT - 6}>
              {short(picture.labels[at]!, named.length > 2 ? LABEL_LETTERS : undefined)}
            </text>
          ))}
        </g>
      </svg>
    </Box>
  );
}

function anchor(place: number): "start" | "middle" | "end" {
  return place < 0.02 ? "start" : place > 0.98 ? "end" : "middle";
}

// A line that is interrupted where there is no number.
function path(points: (number[] | null)[]): string {
  let pen = "M";
  let drawnSoFar = "";
  for (const point of points) {
    if (point) drawnSoFar += `${pen}${point[0]!.toFixed(1)} ${point[1]!.toFixed(1)}`;
    pen = point ? "L" : "M";
  }
  return drawnSoFar;
}

function short(text: string, letters = 40): string {
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}
