// Builds the page into one script. What Airflow exposes as globals is taken from there.
//
//     node build.mjs [OUT]

import { build } from "esbuild";

const GLOBALS = {
  react: "React",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
  "@chakra-ui/react": "ChakraUI",
};

const airflowGlobals = {
  name: "globals of Airflow",
  setup(builder) {
    const names = new RegExp(`^(${Object.keys(GLOBALS).join("|")})$`);
    builder.onResolve({ filter: names }, ({ path }) => ({ path, namespace: "airflow" }));
    builder.onLoad({ filter: /.*/, namespace: "airflow" }, ({ path }) => ({
      contents: `module.exports = globalThis.${GLOBALS[path]};`,
    }));
  },
};

await build({
  entryPoints: ["src/index.tsx"],
  outfile: process.argv[2] ?? "../plugins/rtolap/airflow/page/static/page.js",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  jsx: "automatic",
  logLevel: "warning",
  plugins: [airflowGlobals],
});
