// A share of a whole as a bar and in words, and a warning beside what stands.

import { Alert, Box, Flex, Text } from "@chakra-ui/react";

const FULL = 0.9;

export function Share({ of }: { of: number | null }) {
  if (of === null) return <Text>unknown</Text>;
  const width = `${Math.min(1, Math.max(0, of)) * 100}%`;
  return (
    <Flex align="center" gap={2}>
      <Box aria-hidden="true" bg="bg.emphasized" borderRadius="sm" height="10px" width="6rem">
        <Box bg={of >= FULL ? "red.500" : "blue.500"} borderRadius="sm" height="10px" style={{ width }} />
      </Box>
      <Text>{(of * 100).toFixed(1)} %</Text>
    </Flex>
  );
}

export function Warning({ text }: { text: string }) {
  return (
    <Alert.Root mb={2} status="warning">
      <Alert.Indicator />
      <Alert.Title overflowWrap="anywhere">{text}</Alert.Title>
    </Alert.Root>
  );
}
