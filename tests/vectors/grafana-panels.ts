// npm install --no-save --ignore-scripts --legacy-peer-deps \
//     @grafana/schema@13.2.3 @grafana/prometheus@13.2.3 @grafana/data@13.2.3 ts-json-schema-generator@2.9.0
// npx ts-json-schema-generator --no-type-check --minify --type Dashboard \
//     --path node_modules/@grafana/schema/dist/types/raw/dashboard/x/types.gen.d.ts
// npx ts-json-schema-generator --no-type-check --minify --expose none --type Panels --path grafana-panels.ts
import { Options as Bargauge } from "./node_modules/@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/types.gen";
import { Options as Stat } from "./node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen";
import * as table from "./node_modules/@grafana/schema/dist/types/raw/composable/table/panelcfg/x/types.gen";
import * as timeseries from "./node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen";
import { Prometheus } from "./node_modules/@grafana/prometheus/dist/types/dataquery";

/** What a panel of each kind may say, which the type of a dashboard leaves open; Grafana fills in what is missing. */
export interface Panels {
  bargauge: { options: Partial<Bargauge> };
  stat: { options: Partial<Stat> };
  table: { options: Partial<table.Options>; custom: Partial<table.FieldConfig> };
  timeseries: { options: Partial<timeseries.Options>; custom: Partial<timeseries.FieldConfig> };
  target: Omit<Prometheus, "scopes" | "adhocFilters">;
}
