import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;

/** Memory that changes with each request, and a digest of all of it: its path says whether it grows. */
public final class Growing {
    private static final Map<String, byte[]> held = new LinkedHashMap<>();
    private static int requests;

    private static byte[] answer(boolean grows) throws Exception {
        if (grows) {
            requests++;
            var value = new byte[64 + (requests * 37) % 4096];
            java.util.Arrays.fill(value, (byte) requests);
            held.put("key " + requests, value);
            held.remove("key " + (requests - 200));
        }
        var sum = MessageDigest.getInstance("SHA-256");
        for (var one : held.entrySet()) {
            sum.update(one.getKey().getBytes(StandardCharsets.UTF_8));
            sum.update(one.getValue());
        }
        return ("{\"requests\": " + requests + ", \"held\": " + held.size() + ", \"digest\": \""
            + HexFormat.of().formatHex(sum.digest()) + "\"}").getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            byte[] body;
            try { body = answer(!exchange.getRequestURI().getPath().equals("/state")); }
            catch (Exception error) { throw new IllegalStateException(error); }
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
