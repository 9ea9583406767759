import { Alert, Flex, Stack } from "@chakra-ui/react";

import { usePolled } from "./data";
import { TaskLinks } from "./links";
import type { Overview } from "./messages";
import { Figure, Fresh, LongTable, Problems, Section, State } from "./parts";
import { behind, bytes, count, delay } from "./words";

export function OverviewView() {
  const polled = usePolled<Overview>("rtolap/page/overview", 3000);
  return (
    <Fresh of={polled}>
      {(data) => (
        <Stack gap={6}>
          <Flex gap={3} wrap="wrap">
            <Figure label="Events a second" value={count(data.records_per_s)} />
            <Figure label="Records behind" value={count(data.lag_records)} />
            <Figure label="Freshness" value={delay(data.freshness_ms)} />
            <Figure label="Cubes that are on" value={`${count(data.cubes_enabled)} of ${count(data.cubes)}`} />
            <Figure label="Held by receivers" value={bytes(data.held_bytes)} />
            {Object.entries(data.segments)
              .sort()
              .map(([state, segments]) => (
                <Figure key={state} label={`Segments ${state}`} value={count(segments)} />
              ))}
          </Flex>
          <Section title="Problems">
            <Problems of={data.problems} />
          </Section>
          <Section title="Services">
            {data.agent_error ? (
              <Alert.Root mb={2} status="warning">
                <Alert.Indicator />
                <Alert.Title>The agent&apos;s processes are not known: {data.agent_error}</Alert.Title>
              </Alert.Root>
            ) : null}
            <LongTable
              cells={(row) => {
                const each = data.services[row]!;
                const seen = each.seen_ms === null ? "" : behind(data.now_ms, each.seen_ms);
                const state = <State key="state" of={each.state} />;
                return [each.role, each.name, state, seen, each.detail, <TaskLinks key="task" of={each.task} />];
              }}
              columns={["Service", "Name", "State", "Heard of", "Detail", "In Airflow"]}
              idOf={(row) => `${data.services[row]!.role} ${data.services[row]!.name}`}
              label="Services"
              rows={data.services.length}
            />
          </Section>
        </Stack>
      )}
    </Fresh>
  );
}
