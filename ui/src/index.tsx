// The operator's page. Airflow loads this script and takes the component from the global of the page's name.

import { Box, Heading, Tabs } from "@chakra-ui/react";
import { useSearchParams } from "react-router-dom";

import { AskView } from "./ask";
import { CaptureView } from "./capture";
import { CubesView } from "./cubes";
import { usePolled } from "./data";
import { FleetView } from "./fleet";
import { LoadersView } from "./loaders";
import { LoadsView } from "./loads";
import type { Rights } from "./messages";
import { OverviewView } from "./overview";
import { ReceiversView } from "./receivers";

const VIEWS = ["overview", "cubes", "receivers", "loads", "loaders", "capture", "fleet", "ask"] as const;
const TITLES = {
  overview: "Overview",
  cubes: "Cubes",
  receivers: "Receivers",
  loads: "Loads",
  loaders: "Loaders",
  capture: "Change capture",
  fleet: "Kafka fleet",
  ask: "Ask",
};

// Which view is shown, and of which cube, is in the address: it can be linked to and kept.
function Page() {
  const [parameters, setParameters] = useSearchParams();
  const rights = usePolled<Rights>("rtolap/page/rights", 60_000);
  const named = parameters.get("view");
  const view = VIEWS.find((each) => each === named) ?? "overview";
  const cube = parameters.get("cube") ?? "";
  const show = (to: string, ofCube = "") => setParameters(ofCube ? { view: to, cube: ofCube } : { view: to });
  return (
    <Box height="100%" overflow="auto" p={4}>
      <Heading as="h1" mb={3} size="xl">
        rtolap
      </Heading>
      <Tabs.Root lazyMount onValueChange={(to: { value: string }) => show(to.value)} unmountOnExit value={view}>
        <Tabs.List mb={4}>
          {VIEWS.map((each) => (
            <Tabs.Trigger key={each} value={each}>
              {TITLES[each]}
            </Tabs.Trigger>
          ))}
        </Tabs.List>
        <Tabs.Content value="overview">
          <OverviewView />
        </Tabs.Content>
        <Tabs.Content value="cubes">
          <CubesView choose={(name) => show("cubes", name)} cube={cube} rights={rights.data} />
        </Tabs.Content>
        <Tabs.Content value="receivers">
          <ReceiversView name={parameters.get("name") ?? ""} rights={rights.data} />
        </Tabs.Content>
        <Tabs.Content value="loads">
          <LoadsView rights={rights.data} />
        </Tabs.Content>
        <Tabs.Content value="loaders">
          <LoadersView name={parameters.get("name") ?? ""} rights={rights.data} />
        </Tabs.Content>
        <Tabs.Content value="capture">
          <CaptureView name={parameters.get("name") ?? ""} />
        </Tabs.Content>
        <Tabs.Content value="fleet">
          <FleetView
            choose={(name) => setParameters({ view: "fleet", cluster: name })}
            cluster={parameters.get("cluster") ?? ""}
            rights={rights.data}
          />
        </Tabs.Content>
        <Tabs.Content value="ask">
          <AskView rights={rights.data} />
        </Tabs.Content>
      </Tabs.Root>
    </Box>
  );
}

(globalThis as unknown as Record<string, unknown>)["rtolap"] = Page;
