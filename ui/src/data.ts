// Data of the routes, asked again every few seconds. What is shown says how old it is, and why it is not newer.

import { useCallback, useEffect, useRef, useState } from "react";

export interface Polled<T> {
  data: T | null;
  problem: string;
  ageMs: number; // since the answer that is shown arrived
  again: () => void;
}

export const CONFLICT = 409;
const REQUEST_MS_MAX = 20_000;

export function address(path: string): string {
  return new URL(path, document.baseURI).href;
}

export class Refused extends Error {
  constructor(
    message: string,
    readonly status = 0, // of the answer; 0 where there was none
  ) {
    super(message);
  }
}

// Send a request as the signed-in user. Throws Refused with words for the user.
export async function request<T>(path: string, body?: unknown, signal?: AbortSignal, method = "POST"): Promise<T> {
  return (await (await send(path, body, signal, method)).json()) as T;
}

// `signal`: that ends it, in the place of the time that a request may take.
export async function send(path: string, body?: unknown, signal?: AbortSignal, method = "POST"): Promise<Response> {
  const sent: RequestInit = { credentials: "same-origin", signal: signal ?? AbortSignal.timeout(REQUEST_MS_MAX) };
  if (body !== undefined) {
    sent.method = method;
    sent.headers = { "content-type": "application/json" };
    sent.body = JSON.stringify(body);
  }
  let answer: Response;
  try {
    answer = await fetch(address(path), sent);
  } catch {
    throw new Refused("Airflow does not answer. It is asked again.");
  }
  if (answer.ok) return answer;
  throw new Refused(await reason(answer), answer.status);
}

async function reason(answer: Response): Promise<string> {
  if (answer.status === 401) return "Your session has ended: sign in again, in another tab if you like.";
  let said = "";
  try {
    const body = (await answer.json()) as { message?: unknown; detail?: unknown };
    const words = body.message ?? body.detail;
    said = typeof words === "string" ? words : words === undefined ? "" : JSON.stringify(words);
  } catch {
    said = answer.statusText;
  }
  if (answer.status === 403) return `You may not do this. ${said}`.trim();
  return said || `The answer was ${answer.status}.`;
}

export function usePolled<T>(path: string, everyMs: number): Polled<T> {
  const [data, setData] = useState<T | null>(null);
  const [problem, setProblem] = useState("");
  const [arrivedMs, setArrivedMs] = useState(0);
  const [, tick] = useState(0);
  const asked = useRef(0);
  const waits = useRef(false); // one request at a time: a service that hangs is not asked again and again

  const ask = useCallback(async () => {
    const number = ++asked.current;
    waits.current = true;
    try {
      const found = await request<T>(path);
      if (number !== asked.current) return; // a later request answers
      setData(found);
      setProblem("");
      setArrivedMs(Date.now());
    } catch (error) {
      if (number === asked.current) setProblem(error instanceof Error ? error.message : String(error));
    } finally {
      if (number === asked.current) waits.current = false;
    }
  }, [path]);

  useEffect(() => {
    setData(null);
    setProblem("");
    void ask();
    const polling = setInterval(() => {
      if (!document.hidden && !waits.current) void ask();
    }, everyMs);
    const ticking = setInterval(() => tick((value) => value + 1), 1000);
    return () => {
      asked.current += 1;
      clearInterval(polling);
      clearInterval(ticking);
    };
  }, [ask, everyMs]);

  return { data, problem, ageMs: arrivedMs ? Date.now() - arrivedMs : 0, again: () => void ask() };
}
