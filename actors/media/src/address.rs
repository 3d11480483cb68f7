//! Which addresses are outside: on the public internet, and nowhere special.
//!
//! The tables follow the registries of special-purpose addresses (RFC 6890 and what was added since). An address that
//! carries another one inside it is as special as that one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4 that are not outside: (first address, length of the prefix).
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this host
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // behind a carrier's translator
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local, metadata services
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112
    (Ipv4Addr::new(192, 52, 193, 0), 24), // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(192, 175, 48, 0), 24), // AS112
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, broadcast
];

/// Networks inside the global unicast range of IPv6 that are not outside.
const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Whether an address is on the public internet. Only such addresses may be connected to on behalf of a client.
pub fn is_outside(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_outside_v4(address),
        IpAddr::V6(address) => is_outside_v6(address),
    }
}

fn is_outside_v4(address: Ipv4Addr) -> bool {
    let within = |(network, prefix): &(Ipv4Addr, u32)| {
        (address.to_bits() ^ network.to_bits())
            .checked_shr(32 - prefix)
            .unwrap_or(0)
            == 0
    };
    !SPECIAL_V4.iter().any(within)
}

fn is_outside_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let carried = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match segments {
        // IPv4 through a translator (NAT64) or a tunnel (6to4).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_outside_v4(carried(high, low)),
        [0x2002, high, low, ..] => is_outside_v4(carried(high, low)),
        // IPv4 in IPv6 clothes.
        [0, 0, 0, 0, 0, 0xffff, high, low] => is_outside_v4(carried(high, low)),
        // Of the rest only global unicast: no loopback, local, unique-local, multicast or unassigned address.
        [first, ..] if first & 0xe000 == 0x2000 => {
            let within =
                |(network, prefix): &(Ipv6Addr, u32)| (address.to_bits() ^ network.to_bits()) >> (128 - prefix) == 0;
            !SPECIAL_V6.iter().any(within)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
