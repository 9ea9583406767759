// Names and words that fit at a place of a statement.

import type { KnownTable } from "./asking";

export interface Choice {
  text: string;
  detail: string;
}

export interface Completion {
  from: number; // where the word begins that a choice replaces
  choices: Choice[];
}

const CHOICES_MAX = 12;
const KEYWORDS = (
  "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET AS AND OR NOT IN IS NULL LIKE BETWEEN EXISTS CASE WHEN THEN " +
  "ELSE END JOIN LEFT RIGHT INNER CROSS ON USING UNION ALL DISTINCT WITH ASC DESC COUNT SUM MIN MAX AVG INTERVAL DAY " +
  "HOUR MINUTE CAST DATE TIMESTAMP TRUE FALSE EXPLAIN ANALYZE SHOW TABLES DESCRIBE"
).split(" ");
const WORD = /(?:(`[^`]+`|[A-Za-z_]\w*)\.)?`?([A-Za-z_]\w*)?$/;
const NAMED = /\b(?:from|join)\s+(?:(`[^`]+`|\w+)\.)?(`[^`]+`|\w+)(?:\s+(?:as\s+)?(`[^`]+`|\w+))?/gi;

// Return what fits at the caret. `asked`: without a letter of it, too.
export function completionAt(sql: string, caret: number, tables: KnownTable[], asked: boolean): Completion | null {
  const before = sql.slice(0, caret);
  if (inText(before)) return null;
  const found = WORD.exec(before)!;
  const qualifier = bare(found[1] ?? "");
  const prefix = (found[2] ?? "").toLowerCase();
  if (!qualifier && !prefix && !asked) return null;
  const named = tablesOf(sql, tables);
  const fitting = qualifier ? below(qualifier, named, tables) : anywhere(named, tables);
  const choices: Choice[] = [];
  const taken = new Set<string>();
  for (const choice of fitting) {
    if (choices.length === CHOICES_MAX) break;
    if (!bare(choice.text).toLowerCase().startsWith(prefix) || taken.has(choice.text)) continue;
    taken.add(choice.text);
    choices.push(choice);
  }
  const only = choices.length === 1 && choices[0]!.text.toLowerCase() === prefix;
  const from = caret - prefix.length - (inBackticks(before) ? 1 : 0);
  return choices.length === 0 || only ? null : { from, choices };
}

function* anywhere(named: Map<string, KnownTable>, tables: KnownTable[]): Generator<Choice> {
  for (const table of new Set(named.values())) yield* columnsOf(table);
  for (const table of tables) yield { text: quoted(table.name), detail: `table of ${table.db}` };
  for (const db of new Set(tables.map((table) => table.db))) yield { text: quoted(db), detail: "database" };
  for (const word of KEYWORDS) yield { text: word, detail: "" };
  if (named.size === 0) for (const table of tables) yield* columnsOf(table);
}

function* below(qualifier: string, named: Map<string, KnownTable>, tables: KnownTable[]): Generator<Choice> {
  const table = named.get(qualifier) ?? tables.find((each) => each.name === qualifier);
  if (table) yield* columnsOf(table);
  for (const each of tables) if (each.db === qualifier) yield { text: quoted(each.name), detail: `table of ${each.db}` };
}

function* columnsOf(table: KnownTable): Generator<Choice> {
  for (const column of table.columns) yield { text: quoted(column.name), detail: `${column.type}, ${table.name}` };
}

// Tables that the statement reads, by their names and aliases.
function tablesOf(sql: string, tables: KnownTable[]): Map<string, KnownTable> {
  const found = new Map<string, KnownTable>();
  for (const [, db, name, alias] of sql.matchAll(NAMED)) {
    const table = tables.find((each) => each.name === bare(name!) && (!db || each.db === bare(db)));
    if (!table) continue;
    found.set(table.name, table);
    if (alias) found.set(bare(alias), table);
  }
  return found;
}

function inText(before: string): boolean {
  return (before.replace(/\\./g, "").match(/'/g)?.length ?? 0) % 2 === 1;
}

function inBackticks(before: string): boolean {
  return (before.match(/`/g)?.length ?? 0) % 2 === 1;
}

function bare(name: string): string {
  return name.startsWith("`") ? name.slice(1, -1) : name;
}

function quoted(name: string): string {
  return /^[A-Za-z_]\w*$/.test(name) && !KEYWORDS.includes(name.toUpperCase()) ? name : `\`${name}\``;
}
