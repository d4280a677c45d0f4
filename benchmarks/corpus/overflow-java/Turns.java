import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** Servers that take turns by a counter; one thread, which ends with the first error.  Turns PORT RATES */
public class Turns {
    static final String[] SERVERS = {"north", "east", "south", "west"};
    static int turn = 1;

    static void ask(String rates) throws Exception {
        if (rates.equals("0"))
            return;
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), Integer.parseInt(rates))) {
            if (socket.getInputStream().read() != '2')
                throw new IllegalStateException("no rate");
        }
    }

    public static void main(String[] words) throws Exception {
        ServerSocket listening = new ServerSocket(Integer.parseInt(words[0]), 16, InetAddress.getLoopbackAddress());
        while (true) {
            try (Socket client = listening.accept()) {
                BufferedReader lines = new BufferedReader(new InputStreamReader(client.getInputStream()));
                String path = lines.readLine();
                if (path == null)
                    continue;
                path = path.split(" ")[1];
                for (String line = lines.readLine(); line != null && !line.isEmpty(); line = lines.readLine()) { }
                if (path.startsWith("/skip"))
                    turn += Integer.parseInt(path.substring(path.indexOf('=') + 1));
                String text = "ok";
                if (path.equals("/next")) {
                    ask(words[1]);
                    text = SERVERS[turn % SERVERS.length];
                }
                String head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + text.length() + "\r\n\r\n";
                client.getOutputStream().write((head + text).getBytes());
            }
        }
    }
}
