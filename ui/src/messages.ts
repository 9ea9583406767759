// What the routes answer: see plugins/rtolap/airflow/page, its messages.py and stored/messages.py. Times are milliseconds since the epoch.

import type { TaskLink } from "./links";

export interface Problem {
  what: string;
  action: string;
  severity: "error" | "warning";
  cube: string;
  receiver: string;
}

export interface Service {
  role: string;
  name: string;
  state: string;
  detail: string;
  seen_ms: number | null;
  task: TaskLink | null;
}

export interface Overview {
  now_ms: number;
  leader_url: string;
  services: Service[];
  problems: Problem[];
  cubes: number;
  cubes_enabled: number;
  records_per_s: number | null;
  lag_records: number;
  freshness_ms: number | null;
  held_bytes: number;
  segments: Record<string, number>;
  agent_error: string;
}

export interface CubeRow {
  name: string;
  state: "on" | "paused" | "off";
  low_watermark_ms: number | null;
  lag_records: number;
  records_per_s: number | null;
  freshness_ms: number | null;
  segments: Record<string, number>;
  problems: number;
}

export interface CubeList {
  now_ms: number;
  cubes: CubeRow[];
}

export interface Partition {
  partition: number;
  position: number;
  log_end: number | null;
  watermark_ms: number | null;
  idle: boolean;
  receiver: string;
  reported_ms: number;
}

export interface Segments {
  segment: string[];
  start_ms: number[];
  end_ms: number[];
  state: string[];
  version: number[];
  parts: number[];
  events: (number | null)[];
  late_events: (number | null)[];
  building: boolean[];
  note: string[];
}

export interface CubePage {
  now_ms: number;
  cube: CubeRow;
  table: string;
  topic_id: string;
  horizon_ms: number | null;
  window_ms: number;
  partitions: Partition[];
  refused: { reason: string; records: number; example: string }[];
  problems: Problem[];
  move_waits: string[];
  segments: Segments;
  failed: { segment: string; version: number; error: string }[];
  late: { partition: number; offset: number; event_ms: number; segment: string; receiver: string }[];
  switched: { to: string; by: string; reason: string; at_ms: number } | null;
}

export interface OwnedPartition {
  cube: string;
  partition: number;
  position: number;
  log_end: number | null;
  watermark_ms: number | null;
  records_per_s: number | null;
  held_bytes: number | null;
}

export interface Receiver {
  name: string;
  replica_set: string;
  address: string;
  health: string;
  reason: string;
  leads: boolean;
  draining: boolean;
  seen_ms: number | null;
  cubes: Record<string, string>;
  partitions: OwnedPartition[];
}

export interface Moving {
  cube: string;
  before: Record<string, number[]>;
  after: Record<string, number[]>;
  waits: string[];
}

export interface Receivers {
  now_ms: number;
  receivers: Receiver[];
  moves: Moving[];
}

export interface Loads {
  now_ms: number;
  databases: string[];
  tables: { db: string; name: string; model: string; partitions: number; created_ms: number }[];
  nodes: { name: string; state: string; replicas: number; held_bytes: number }[];
  moves: { tablet: string; from_node: string; to_node: string; reason: string; state: string }[];
  nodes_error: string;
}

export interface StoredPartition {
  name: string;
  visible_version: number;
  committed_version: number;
  tablets: number;
  replicas: number;
  fresh: number;
  unreadable: number[];
  health: string;
}

export interface TabletReplica {
  partition: string;
  bucket: number;
  node: string;
  version: number;
  rowsets: number;
  files: number;
  rows: number;
  bytes: number;
  pending_files: number;
  compacting_since_ms: number | null;
  compacted_ms: number | null;
  problem: string;
}

export interface StoredTablePage {
  now_ms: number;
  db: string;
  name: string;
  partitions: StoredPartition[];
  replicas: TabletReplica[];
  missing: Record<string, string>;
}

export interface Load {
  txn_id: number;
  label: string;
  state: string;
  tables: string[];
  began_ms: number;
  took_ms: number | null;
  reason: string;
  rows: number | null;
  has_errors: boolean;
}

export interface ErrorPage {
  now_ms: number;
  label: string;
  first: number;
  total: number;
  rows: { row: string; reason: string }[];
  reasons: { reason: string; rows: number }[];
  left_out: number;
}

export interface LoadList {
  now_ms: number;
  loads: Load[];
  states: Record<string, number>;
  cut: boolean;
}

export interface LoaderRow {
  name: string;
  state: string;
  phase: string;
  table: string;
  topic: string;
  lag_records: number | null;
  rows_per_s: number | null;
  rows_loaded: number | null;
  rows_rejected: number | null;
  loaded_ms: number | null;
  reason: string;
  error: string;
  task: TaskLink | null;
}

export interface Loaders {
  now_ms: number;
  loaders: LoaderRow[];
}

export interface Letter {
  partition: number;
  offset: number;
  state: string;
  reason: string;
  detail: string;
  value: string | null;
  batch: string;
  replay: string;
  who: string;
  at_ms: number | null;
  note: string;
}

export interface LetterPage {
  now_ms: number;
  loader: string;
  topic: string;
  letters: Letter[];
  counts: Record<string, number>;
  reasons: Record<string, number>;
  cut: boolean;
}

export interface Rights {
  user: string;
  may_start: string[];
  may_ask: boolean;
  may_answer: string[];
}
