import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.concurrent.Executors;

/** A stock of one piece that is looked at, and taken later.  Stock PORT RATES */
public class Stock {
    static volatile int pieces = 1;

    static void ask(String rates) throws Exception {
        if (rates.equals("0"))
            return;
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.parseInt(rates))) {
            if (socket.getInputStream().read() != '2')
                throw new IllegalStateException("no rate");
        }
    }

    static String answer(String path, String rates) throws Exception {
        if (path.equals("/take") && pieces > 0) {
            Thread.sleep(300); // it is packed
            pieces--;
        }
        if (path.equals("/report")) {
            ask(rates);
            return "x".repeat(pieces);
        }
        return "ok";
    }

    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])), 16);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            int status = 200;
            byte[] text;
            try {
                text = answer(exchange.getRequestURI().getPath(), words[1]).getBytes();
            } catch (Exception error) {
                error.printStackTrace();
                status = 500;
                text = "failed".getBytes();
            }
            exchange.sendResponseHeaders(status, text.length == 0 ? -1 : text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
    }
}
