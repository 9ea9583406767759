// The text of a statement, with names of the catalogue completed while it is typed.

import { Box, Text, Textarea } from "@chakra-ui/react";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";

import type { KnownTable } from "./asking";
import { type Completion, completionAt } from "./completion";

const LIST = "rtolap-completions";

export function Editor({
  value,
  change,
  run,
  tables,
}: {
  value: string;
  change: (to: string) => void;
  run: () => void;
  tables: KnownTable[];
}) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [completion, setCompletion] = useState<Completion | null>(null);
  const [at, setAt] = useState(0);
  const caret = useRef<number | null>(null); // where it has to go once the text is shown

  useEffect(() => {
    if (caret.current === null) return;
    area.current?.setSelectionRange(caret.current, caret.current);
    caret.current = null;
  }, [value]);

  function look(text: string, asked: boolean) {
    setAt(0);
    setCompletion(completionAt(text, area.current?.selectionStart ?? text.length, tables, asked));
  }

  function take(choice: number) {
    const text = completion?.choices[choice]?.text;
    if (!completion || text === undefined) return;
    caret.current = completion.from + text.length;
    change(value.slice(0, completion.from) + text + value.slice(area.current?.selectionStart ?? value.length));
    setCompletion(null);
    area.current?.focus();
  }

  function key(event: KeyboardEvent) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      setCompletion(null);
      run();
    } else if (event.key === " " && event.ctrlKey) look(value, true);
    else if (!completion) return;
    else if (event.key === "ArrowDown") setAt((at + 1) % completion.choices.length);
    else if (event.key === "ArrowUp") setAt((at + completion.choices.length - 1) % completion.choices.length);
    else if (event.key === "Tab") take(at);
    else if (event.key === "Escape") setCompletion(null);
    else return;
    event.preventDefault();
  }

  return (
    <Box>
      <Textarea
        aria-activedescendant={completion ? `${LIST}-${at}` : undefined}
        aria-autocomplete="list"
        aria-controls={completion ? LIST : undefined}
        aria-label="Statement"
        autoCapitalize="off"
        autoCorrect="off"
        fontFamily="mono"
        onBlur={() => setCompletion(null)}
        onChange={(event) => {
          change(event.target.value);
          look(event.target.value, false);
        }}
        onKeyDown={key}
        placeholder="SELECT … (Ctrl+Enter runs it, Ctrl+Space completes a name, Tab takes it)"
        ref={area}
        rows={7}
        spellCheck={false}
        value={value}
      />
      {completion ? (
        <Box
          aria-label="Names that fit"
          as="ul"
          borderRadius="md"
          borderWidth="1px"
          id={LIST}
          listStyleType="none"
          maxW="32rem"
          mt={1}
          role="listbox"
        >
          {completion.choices.map((choice, number) => (
            <Box
              aria-selected={number === at}
              as="li"
              bg={number === at ? "bg.emphasized" : undefined}
              display="flex"
              gap={3}
              id={`${LIST}-${number}`}
              justifyContent="space-between"
              key={choice.text}
              onMouseDown={(event) => {
                event.preventDefault(); // the text keeps the focus
                take(number);
              }}
              px={2}
              role="option"
            >
              <Text as="span" fontFamily="mono">
                {choice.text}
              </Text>
              <Text as="span" fontSize="sm">
                {choice.detail}
              </Text>
            </Box>
          ))}
        </Box>
      ) : null}
    </Box>
  );
}
