// Number columns of an answer over its first column of times or texts, as one picture.

import { Box, Flex, Text } from "@chakra-ui/react";

import type { Answer, Value } from "./asking";
import { textOf } from "./asking";
import { count } from "./words";

const COLOURS = ["blue", "orange", "green", "purple"].map((name) => `var(--chakra-colors-${name}-500)`);
const WIDTH = 900;
const HEIGHT = 260;
const LEFT = 90;
const BOTTOM = 24;
const TOP = 10;
const BARS_MAX = 60;
const POINTS_MAX = 2000;

interface Drawn {
  kind: "bars" | "line";
  over: string;
  labels: string[];
  places: number[]; // along the picture, 0 to 1
  series: { name: string; values: (number | null)[] }[];
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

export function Chart({ of }: { of: Answer }) {
  const picture = drawn(of);
  if (!picture) return <Text>There is nothing to draw: it takes a column of times or texts, and one of numbers.</Text>;
  const values = picture.series.flatMap((each) => each.values.filter((value) => value !== null));
  const low = Math.min(0, ...values);
  const high = Math.max(low + (values.every((value) => value === low) ? 1 : 0), ...values, 0);
  const y = (value: number) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const x = (place: number) => LEFT + place * (WIDTH - LEFT - 10);
  const names = picture.series.map((each) => each.name).join(", ");
  const what = picture.kind === "line" ? "Lines" : "Bars";
  return (
    <Box>
      <svg
        aria-label={`${what} of ${names} over ${picture.over}: ${count(picture.labels.length)} rows, from ${low} to ${high}`}
        role="img"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        width="100%"
      >
        {picture.series.map((series, number) =>
          picture.kind === "line" ? (
            <path
              d={path(series.values.map((value, at) => (value === null ? null : [x(picture.places[at]!), y(value)])))}
              fill="none"
              key={number}
              stroke={COLOURS[number]}
              strokeWidth={2}
            />
          ) : (
            series.values.map((value, at) => {
              if (value === null) return null;
              const room = (WIDTH - LEFT - 10) / picture.labels.length;
              const width = (room * 0.8) / picture.series.length;
              const left = x(at / picture.labels.length) + room * 0.1 + number * width;
              const top = Math.min(y(value), y(0));
              return (
                <rect
                  fill={COLOURS[number]}
                  height={Math.max(1, Math.abs(y(value) - y(0)))}
                  key={`${number} ${at}`}
                  width={width}
                  x={left}
                  y={top}
                >
                  <title>{`${picture.labels[at]}: ${value}`}</title>
                </rect>
              );
            })
          ),
        )}
        <line stroke="currentColor" x1={LEFT} x2={WIDTH - 10} y1={y(0)} y2={y(0)} />
        <g fill="currentColor" fontSize={12}>
          <text textAnchor="end" x={LEFT - 6} y={TOP + 8}>
            {high.toLocaleString("en-US")}
          </text>
          <text textAnchor="end" x={LEFT - 6} y={y(low) + 4}>
            {low.toLocaleString("en-US")}
          </text>
          <text x={LEFT} y={HEIGHT - 6}>
            {short(picture.labels[0]!)}
          </text>
          {picture.labels.length > 1 ? (
            <text textAnchor="end" x={WIDTH - 10} y={HEIGHT - 6}>
              {short(picture.labels[picture.labels.length - 1]!)}
            </text>
          ) : null}
        </g>
      </svg>
      <Flex gap={4} wrap="wrap">
        {picture.series.map((series, number) => (
          <Flex align="center" gap={1} key={number}>
            <Box bg={COLOURS[number]} borderRadius="sm" h={3} w={3} />
            <Text fontSize="sm">{short(series.name)}</Text>
          </Flex>
        ))}
        {picture.left > 0 ? <Text fontSize="sm">{count(picture.left)} further rows are not drawn.</Text> : null}
      </Flex>
    </Box>
  );
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

function short(text: string): string {
  return text.length > 40 ? `${text.slice(0, 39)}…` : text;
}
