//! The rule one batch at a time, as a scheduler written in Rust would call it: what
//! bench_rule.py measures against.
//!
//!     rule DATA BATCHES WIDTH CANONICAL REPEATS
//!
//! DATA holds BATCHES x WIDTH slots and then as many depths, as little-endian i64. Prints the
//! seconds of the best of REPEATS passes and a checksum of every order and key word.

use std::cmp::Reverse;
use std::hint::black_box;
use std::time::Instant;

const SENTINEL: u32 = u32::MAX;
const WIDEST: usize = 64;

/// Order, assign and key of one batch: two vectors and one `sort_by_key`.
fn order_and_key(slots: &[usize], depths: &[usize], canonical: bool) -> (Vec<usize>, Vec<u32>) {
    let n = slots.len();
    let mut order: Vec<usize> = (0..n).collect();
    let mut words: Vec<u32> = Vec::with_capacity(2 * n + 1);
    if canonical {
        order.sort_by_key(|&i| slots[i]);
        // The multiset in descending order, on the stack: no third vector.
        let mut assigned = [0u32; WIDEST];
        for (rows, &depth) in assigned.iter_mut().zip(depths) {
            *rows = depth as u32;
        }
        assigned[..n].sort_unstable_by_key(|&rows| Reverse(rows));
        for (&i, &rows) in order.iter().zip(&assigned) {
            words.extend_from_slice(&[slots[i] as u32, rows]);
        }
    } else {
        order.sort_by_key(|&i| (Reverse(depths[i]), slots[i]));
        for &i in &order {
            words.extend_from_slice(&[slots[i] as u32, depths[i] as u32]);
        }
    }
    words.push(SENTINEL);
    (order, words)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args[i].parse::<usize>().expect("a whole number");
    let (batches, width, canonical, repeats) = (number(2), number(3), number(4) == 1, number(5));
    assert!(width <= WIDEST, "WIDTH must be at most {WIDEST}, got {width}");
    let data: Vec<usize> = std::fs::read(&args[1])
        .expect("DATA that can be read")
        .chunks_exact(8)
        .map(|word| i64::from_le_bytes(word.try_into().unwrap()) as usize)
        .collect();
    let (slots, depths) = data.split_at(batches * width);
    let pairs = || slots.chunks_exact(width).zip(depths.chunks_exact(width));

    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let start = Instant::now();
        for (slots, depths) in pairs() {
            black_box(order_and_key(slots, depths, canonical));
        }
        best = best.min(start.elapsed().as_secs_f64());
    }

    let mut checksum = 0u64;
    let mut position = 0u64;
    for (slots, depths) in pairs() {
        let (order, words) = order_and_key(slots, depths, canonical);
        let values = order.iter().map(|&i| i as u64).chain(words.iter().map(|&w| w as u64));
        for value in values {
            position += 1;
            checksum = checksum.wrapping_add(position.wrapping_mul(value + 1));
        }
    }
    println!("{best} {checksum}");
}
