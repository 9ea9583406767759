// Figures as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(count: number | null): string {
  if (count === null) return "unknown";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function count(value: number | null): string {
  return value === null ? "unknown" : Math.round(value).toLocaleString("en-US");
}

export function instant(ms: number | null): string {
  return ms === null ? "unknown" : new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

export function duration(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

// What records of the last minute took until answers had them.
export function delay(ms: number | null): string {
  return ms === null ? "nothing new" : duration(ms);
}

// How far behind the wall clock an instant is, both by the server's clock.
export function behind(nowMs: number, ms: number | null): string {
  if (ms === null) return "unknown";
  return ms > nowMs ? `${duration(ms - nowMs)} ahead` : `${duration(nowMs - ms)} ago`;
}
