# A stock, one item of which is nobody's any more; a thread for each connection.  service.rb PORT RATES
require "socket"

port, rates = ARGV
owners = { "tea" => "eve" }

ask = lambda do
  next if rates == "0"
  sock = rates.start_with?("/") ? UNIXSocket.new(rates) : TCPSocket.new("127.0.0.1", rates.to_i)
  raise "no rate" if sock.read(1) != "2"
end

TCPServer.new("127.0.0.1", port.to_i).then do |listening|
  loop do
    Thread.new(listening.accept) do |client|
      path = client.gets.to_s.split[1]
      nil until client.gets.to_s.strip.empty?
      status = "200 OK"
      begin
        case path
        when "/take" then owners["tea"] = "eve"
        when "/leave" then owners.delete("tea")
        when "/owner"
          ask.call
          owners["tea"].upcase
        end
      rescue => error
        warn error.full_message(highlight: false)
        status = "500 Internal Server Error"
      end
      client.write("HTTP/1.1 #{status}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
      client.close
    end
  end
end
