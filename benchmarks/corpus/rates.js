// How the Node.js services of the corpus ask the server of rates, which no recording holds; RATES as in rates.py.
const net = require("net");

module.exports = (rates) =>
  new Promise((resolve, reject) => {
    if (rates === "0") return resolve(2);
    const socket = rates.startsWith("/") ? net.connect(rates) : net.connect(Number(rates), "127.0.0.1");
    socket.on("error", reject);
    socket.on("data", (data) => {
      socket.end();
      const rate = Number(String(data));
      if (Number.isNaN(rate)) reject(new RangeError("a rate that is no number"));
      else resolve(rate);
    });
  });
