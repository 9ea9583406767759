// Segments of a cube along time, as bars of one picture, however many there are.

import { Box, Flex, Text } from "@chakra-ui/react";

import type { Segments } from "./messages";
import { count, instant } from "./words";

const COLOURS: Record<string, string> = {
  ACTIVE: "var(--chakra-colors-cyan-500)",
  IMMUTABLE: "var(--chakra-colors-purple-500)",
  REMOTE_PERSISTED: "var(--chakra-colors-blue-500)",
  READY: "var(--chakra-colors-green-500)",
};
const OTHER = "var(--chakra-colors-red-500)";
const WIDTH = 1000;
const HEIGHT = 44;

interface Run {
  state: string;
  startMs: number;
  endMs: number;
}

// Neighbours of the same state are one bar: a picture of a thousand bars is no more than can be seen.
export function runs(segments: Segments): Run[] {
  const found: Run[] = [];
  segments.segment.forEach((_, at) => {
    const state = segments.state[at]!;
    const startMs = segments.start_ms[at]!;
    const endMs = segments.end_ms[at]!;
    const last = found[found.length - 1];
    if (last && last.state === state && last.endMs === startMs) last.endMs = endMs;
    else found.push({ state, startMs, endMs });
  });
  return found;
}

export function Timeline({
  segments,
  lowWatermarkMs,
  nowMs,
}: {
  segments: Segments;
  lowWatermarkMs: number | null;
  nowMs: number;
}) {
  const total = segments.segment.length;
  if (total === 0) return <Text>There are no segments yet.</Text>;
  const from = segments.start_ms[0]!;
  const until = Math.max(segments.end_ms[total - 1]!, from + 1);
  const x = (ms: number) => ((ms - from) / (until - from)) * WIDTH;
  const counts: Record<string, number> = {};
  segments.state.forEach((state) => {
    counts[state] = (counts[state] ?? 0) + 1;
  });
  const states = Object.entries(counts).sort();
  const words = states.map(([state, segmentsOf]) => `${count(segmentsOf)} ${state}`).join(", ");
  return (
    <Box>
      <svg
        aria-label={`${count(total)} segments from ${instant(from)} to ${instant(until)}: ${words}`}
        height={HEIGHT}
        preserveAspectRatio="none"
        role="img"
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        width="100%"
      >
        {runs(segments).map((run) => (
          <rect
            fill={COLOURS[run.state] ?? OTHER}
            height={HEIGHT - 12}
            key={run.startMs}
            width={Math.max(x(run.endMs) - x(run.startMs) - 0.5, 0.75)}
            x={x(run.startMs)}
            y={6}
          />
        ))}
        {[lowWatermarkMs, nowMs].map((ms, number) =>
          ms === null || ms < from || ms > until ? null : (
            <line
              key={number === 0 ? "low watermark" : "now"}
              stroke={number === 0 ? "var(--chakra-colors-orange-500)" : "currentColor"}
              strokeDasharray={number === 0 ? undefined : "4 3"}
              strokeWidth={2}
              x1={x(ms)}
              x2={x(ms)}
              y1={0}
              y2={HEIGHT}
            />
          ),
        )}
      </svg>
      <Flex color="fg.muted" fontSize="sm" gap={4} justify="space-between" wrap="wrap">
        <Text>{instant(from)}</Text>
        <Flex gap={4} wrap="wrap">
          {states.map(([state, segmentsOf]) => (
            <Flex align="center" gap={1} key={state}>
              <Box bg={COLOURS[state] ?? OTHER} borderRadius="sm" height="10px" width="10px" />
              <Text>
                {count(segmentsOf)} {state}
              </Text>
            </Flex>
          ))}
        </Flex>
        <Text>{instant(until)}</Text>
      </Flex>
    </Box>
  );
}
