// Drives a debug adapter with Visual Studio Code's own client for such tests, and prints what it was shown as one line of JSON.
// usage: node dap_client.js PORT SOURCE LINE
const { DebugClient } = require("@vscode/debugadapter-testsupport");

async function drive(port, source, line) {
  const client = new DebugClient("node", "", "debugpy", undefined, true);
  client.defaultTimeout = 60000;
  await client.start(port);
  const top = async () => (await client.stackTraceRequest({ threadId: 1, levels: 1 })).body.stackFrames[0];
  const changed = [];
  client.on("breakpoint", (event) => changed.push(event.body.breakpoint.verified));
  const stopped = async (asked) => {
    await Promise.all([client.waitForEvent("stopped"), asked]);
    return top();
  };
  const seen = { stepsBack: (await client.initializeRequest()).body.supportsStepBack };
  seen.failure = await stopped(
    (async () => {
      await client.attachRequest({});
      await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [{ line }, { line: 1 }] });
      await client.setExceptionBreakpointsRequest({ filters: [] });
      await client.configurationDoneRequest();
    })(),
  );
  seen.changed = changed;
  seen.threads = (await client.threadsRequest()).body.threads.length;
  seen.before = await stopped(client.stepBackRequest({ threadId: 1 }));
  seen.breakpoint = await stopped(client.reverseContinueRequest({ threadId: 1 }));
  const frameId = seen.breakpoint.id;
  const [inner, outer] = (await client.scopesRequest({ frameId })).body.scopes;
  const held = async ({ variablesReference }) =>
    (await client.variablesRequest({ variablesReference })).body.variables;
  seen.variables = await held(inner);
  const noted = (await held(outer)).find((one) => one.name === "NOTED");
  seen.unfolded = (await held(noted)).length;
  const { variablesReference } = outer;
  seen.watched = (await client.send("dataBreakpointInfo", { variablesReference, name: "NOTED" })).body.dataId;
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
