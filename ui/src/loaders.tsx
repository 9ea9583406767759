import { Button, Text } from "@chakra-ui/react";
import { useState } from "react";

import { usePolled } from "./data";
import { DeadLetters } from "./letters";
import { TaskLinks } from "./links";
import type { LoaderRow, Loaders, Rights } from "./messages";
import { Fresh, LongTable, Section, State } from "./parts";
import { behind, count } from "./words";

export function LoadersView({ name, rights }: { name: string; rights: Rights | null }) {
  const [loader, setLoader] = useState("");
  return loader ? (
    <DeadLetters back={() => setLoader("")} loader={loader} rights={rights} />
  ) : (
    <AllLoaders choose={setLoader} mayAsk={rights?.may_ask ?? false} name={name} />
  );
}

function AllLoaders({ name, choose, mayAsk }: { name: string; choose: (loader: string) => void; mayAsk: boolean }) {
  const polled = usePolled<Loaders>("rtolap/page/loaders", 5000);
  return (
    <Fresh of={polled}>
      {(data) => (
        <Section title="Loaders">
          {name ? <Text>Only {name} is shown.</Text> : null}
          {data.loaders.length === 0 ? (
            <Text>The agent knows no loader. One that is declared is started by rtolap_loaders.</Text>
          ) : (
            <LongTable
              cells={(row) => ofLoader(named(data, name)[row]!, data.now_ms, mayAsk ? choose : null)}
              columns={["Loader", "State", "Now", "Topic", "Table", "Behind", "Rows/s", "Loaded", "Refused", "Last load", "Dead letters", "In Airflow", "Detail"]}
              heightPx={600}
              idOf={(row) => named(data, name)[row]!.name}
              label="Loaders"
              rows={named(data, name).length}
            />
          )}
        </Section>
      )}
    </Fresh>
  );
}

function named(data: Loaders, name: string): LoaderRow[] {
  return data.loaders.filter((each) => !name || each.name === name);
}

function ofLoader(each: LoaderRow, nowMs: number, choose: ((loader: string) => void) | null) {
  return [
    each.name,
    <State key="state" of={each.state} />,
    each.phase,
    each.topic,
    each.table,
    count(each.lag_records),
    count(each.rows_per_s),
    count(each.rows_loaded),
    count(each.rows_rejected),
    behind(nowMs, each.loaded_ms),
    each.error || !choose ? (
      ""
    ) : (
      <Button aria-label={`Dead letters of ${each.name}`} height="auto" key="letters" minH="0" onClick={() => choose(each.name)} px={0} size="xs" variant="plain">
        Show
      </Button>
    ),
    <TaskLinks key="task" of={each.task} />,
    each.error ? `Figures are not known: ${each.error}${each.reason ? ` (${each.reason})` : ""}` : each.reason,
  ];
}
