// Drives a debug adapter with Visual Studio Code's own client for such tests, and prints what it was shown as one line of JSON.
// usage: node dap_client.js PORT SOURCE LINE
const { DebugClient } = require("@vscode/debugadapter-testsupport");

async function drive(port, source, line) {
  const client = new DebugClient("node", "", "debugpy", undefined, true);
  client.defaultTimeout = 60000;
  await client.start(port);
  const top = async () => (await client.stackTraceRequest({ threadId: 1, levels: 1 })).body.stackFrames[0];
  const stopped = async (asked) => {
    await Promise.all([client.waitForEvent("stopped"), asked]);
    return top();
  };
  const seen = { stepsBack: (await client.initializeRequest()).body.supportsStepBack };
  seen.failure = await stopped(
    (async () => {
      await client.attachRequest({});
      await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [{ line }] });
      await client.configurationDoneRequest();
    })(),
  );
  seen.before = await stopped(client.stepBackRequest({ threadId: 1 }));
  seen.breakpoint = await stopped(client.reverseContinueRequest({ threadId: 1 }));
  const frameId = seen.breakpoint.id;
  const [scope] = (await client.scopesRequest({ frameId })).body.scopes;
  const { variablesReference } = scope;
  seen.variables = (await client.variablesRequest({ variablesReference })).body.variables;
  seen.evaluated = (await client.evaluateRequest({ expression: "len(NOTED)", frameId })).body.result;
  seen.end = await stopped(client.continueRequest({ threadId: 1 }));
  await client.disconnectRequest({});
  console.log(JSON.stringify(seen));
}

const [port, source, line] = process.argv.slice(2);
drive(Number(port), source, Number(line)).catch((error) => {
  console.error(error);
  process.exit(1);
});
