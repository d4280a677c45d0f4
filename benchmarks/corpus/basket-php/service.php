<?php
// A basket kept in a file, one line of which loses its price.  php -S HOST:PORT service.php, with RATES and DATA
declare(strict_types=1);

function ask(): void
{
    $rates = getenv('RATES');
    if ($rates === '0') {
        return;
    }
    $sock = stream_socket_client("tcp://127.0.0.1:$rates");
    if ($sock === false) {
        throw new RuntimeException('no rates');
    }
    if ((int) fgets($sock) !== 2) {
        throw new RangeException('no rate');
    }
}

function total(array $basket): int
{
    $sum = 0;
    foreach ($basket as $line) {
        $sum += 2 * ($line['cents'] ?? throw new DomainException("{$line['name']} has no price"));
    }
    return $sum;
}

$file = getenv('DATA') . '/basket.json';
$basket = is_file($file) ? json_decode(file_get_contents($file), true) : [];
switch ($_SERVER['REQUEST_URI']) {
    case '/put':
        $basket[] = ['name' => 'tea', 'cents' => 300];
        break;
    case '/gift':
        $basket[] = ['name' => 'gift', 'cents' => null];
        break;
    case '/total':
        ask();
        echo total($basket);
        break;
}
file_put_contents($file, json_encode($basket));
