// What the routes of statements answer: see plugins/rtolap/airflow/page/ask.py.

import { request, send } from "./data";

export type Value = string | number | boolean | null | unknown[] | Record<string, unknown>;

export interface Column {
  name: string;
  type: string; // as Arrow names it
}

export interface Warned {
  code: string;
  level: "Note" | "Warning";
  message: string;
}

export interface Answer {
  columns: Column[];
  rows: Value[][];
  cut: boolean;
  rows_max: number;
  warnings: Warned[];
  session_token: string;
}

export interface KnownTable {
  db: string;
  name: string;
  columns: Column[];
}

export interface KnownTables {
  tables: KnownTable[];
  cut: boolean;
}

export interface PastStatement {
  started_at: string;
  sql: string;
  outcome: string;
  error: string;
  elapsed_ms: number;
  rows: number;
}

export interface PastStatements {
  statements: PastStatement[];
}

// Who aborts the signal cancels the statement: the query service ends it when nobody waits for it any more.
export function ask(sql: string, token: string, signal: AbortSignal): Promise<Answer> {
  return request<Answer>("rtolap/page/ask/answers", { sql, session_token: token }, signal);
}

// The statement runs again, at or beyond the events of the answer that gave the token.
export async function arrowFile(sql: string, token: string, signal: AbortSignal): Promise<Blob> {
  return await (await send("rtolap/page/ask/arrow", { sql, session_token: token }, signal)).blob();
}

// NULL is an empty field, an empty text is "": RFC 4180 leaves room for it.
export function csvFile(answer: Answer): Blob {
  const lines = [answer.columns.map((column) => field(column.name)), ...answer.rows.map((row) => row.map(field))];
  return new Blob([lines.map((line) => `${line.join(",")}\r\n`).join("")], { type: "text/csv;charset=utf-8" });
}

function field(value: Value): string {
  if (value === null) return "";
  const text = textOf(value);
  return text === "" || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function textOf(value: Value): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it meanwhile
}
