// What the routes answer: see plugins/rtolap/airflow/page/messages.py. Times are milliseconds since the epoch.

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

export interface Rights {
  user: string;
  may_start: string[];
}
