import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Executors;

/** Counts in memory and in a file; its pool of threads, its collector and its compiler threads are part of a commit. */
public final class Counter {
    private static long count;

    private static synchronized byte[] answer(boolean counts, Path log) throws java.io.IOException {
        if (counts) {
            count++;
            Files.writeString(log, count + "\n", StandardOpenOption.APPEND);
        }
        return String.format(java.util.Locale.ROOT,
            "{\"count\": %d, \"lines\": %d, \"pid\": %d, \"monotonic\": %.6f, \"wall\": %.3f}",
            count, counts ? -1 : Files.readAllLines(log).size(), ProcessHandle.current().pid(),
            System.nanoTime() / 1e9, System.currentTimeMillis() / 1e3).getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        Path log = Path.of(arguments[1]);
        Files.writeString(log, "");
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            byte[] body = answer(exchange.getRequestMethod().equals("POST"), log);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
