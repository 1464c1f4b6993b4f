//! ZSTD frames that libzstd does not write: made here from the format's description (RFC 8878), of all block types,
//! literals and table modes, with tables of any kind. Their contents are known, and libzstd decodes them as well.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::lanes;
use crate::zstd::{by_library, check_verdict, decompress};

/// Bits in the order of a reader that begins at the first byte.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        self.0.extend((0..count).map(|i| value >> i & 1 == 1));
    }
    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| {
            bits.iter()
                .rev()
                .fold(0, |byte, &bit| byte << 1 | u8::from(bit))
        };
        self.0.chunks(8).map(byte).collect()
    }
}

/// A stream that is read from its end: `fields` in the order of reading.
fn backward(fields: &[(u32, u32)]) -> Vec<u8> {
    let mut bits = Bits::default();
    for &(value, count) in fields.iter().rev() {
        bits.put(value, count);
    }
    bits.put(1, 1);
    bits.bytes()
}

/// An FSE table: for each state, its symbol, the number of bits to read, and the state to which they are added.
#[derive(Clone)]
struct Fse {
    log: u32,
    counts: Vec<i32>,
    states: Vec<(u32, u32, u32)>,
}

impl Fse {
    fn new(log: u32, counts: Vec<i32>) -> Self {
        let size = 1_usize << log;
        let mut symbols = vec![None; size];
        let rare = (0..counts.len()).filter(|&symbol| counts[symbol] < 0);
        for (i, symbol) in rare.enumerate() {
            symbols[size - 1 - i] = Some(symbol);
        }
        let mut state = 0;
        for (symbol, &count) in counts.iter().enumerate() {
            for _ in 0..count {
                while symbols[state].is_some() {
                    state = (state + size / 2 + size / 8 + 3) % size;
                }
                symbols[state] = Some(symbol);
            }
        }
        let mut next: Vec<_> = counts.iter().map(|count| count.unsigned_abs()).collect();
        let state_of = |symbol: Option<usize>| {
            let symbol = symbol.expect("the counts fill the table");
            let number = next[symbol];
            next[symbol] += 1;
            let bits = log - number.ilog2();
            (symbol as u32, bits, (number << bits) - size as u32)
        };
        let states = symbols.into_iter().map(state_of).collect();
        Self {
            log,
            counts,
            states,
        }
    }

    /// One symbol, which takes no bits.
    fn single(symbol: u32) -> Self {
        Self {
            log: 0,
            counts: Vec::new(),
            states: vec![(symbol, 0, 0)],
        }
    }

    /// All symbols up to `most` may occur in it.
    fn random(rng: &mut SmallRng, log: u32, most: u32) -> Self {
        let mut counts = vec![0; rng.random_range(2..=most as usize + 1)];
        let mut left = 1 << log;
        while left > 0 {
            let symbol = rng.random_range(0..counts.len());
            if symbol > 0 && counts[symbol] == 0 && rng.random_ratio(1, 3) {
                counts[symbol] = -1;
                left -= 1;
            } else if counts[symbol] >= 0 {
                let count = rng.random_range(1..=left.min(1 + (1 << log) / 4));
                counts[symbol] += count;
                left -= count;
            }
        }
        while counts.last() == Some(&0) {
            counts.pop();
        }
        Self::new(log, counts)
    }

    fn description(&self) -> Vec<u8> {
        let mut bits = Bits::default();
        bits.put(self.log - 5, 4);
        let mut left = (1 << self.log) + 1_u32;
        let mut symbols = self.counts.iter().peekable();
        while let Some(&count) = symbols.next() {
            let width = left.ilog2() + 1;
            let half = 1 << (width - 1);
            let shorter = 2 * half - 1 - left;
            let value = (count + 1) as u32;
            if value < shorter {
                bits.put(value, width - 1);
            } else {
                bits.put(
                    if value >= half {
                        value + shorter
                    } else {
                        value
                    },
                    width,
                );
            }
            left -= count.unsigned_abs();
            if count == 0 {
                let mut zeros = 0;
                while symbols.next_if_eq(&&0).is_some() {
                    zeros += 1;
                }
                (0..zeros / 3).for_each(|_| bits.put(3, 2));
                bits.put(zeros % 3, 2);
            }
        }
        bits.bytes()
    }

    fn symbols(&self) -> Vec<u32> {
        let mut symbols: Vec<_> = self.states.iter().map(|state| state.0).collect();
        symbols.sort_unstable();
        symbols.dedup();
        symbols
    }

    /// The states that yield these symbols one after another.
    fn path(&self, symbols: &[u32]) -> Vec<u32> {
        let mut path = Vec::new();
        for &symbol in symbols.iter().rev() {
            let leads_on = |&(own, bits, base): &(u32, u32, u32)| {
                let next = path.last();
                own == symbol && next.is_none_or(|next| (base..base + (1 << bits)).contains(next))
            };
            let state = self.states.iter().position(leads_on);
            path.push(state.expect("each symbol leads to all states") as u32);
        }
        path.reverse();
        path
    }

    /// The bits that are read between a state and the next one.
    fn step(&self, state: u32, next: u32) -> (u32, u32) {
        let (_, bits, base) = self.states[state as usize];
        (next - base, bits)
    }
}

/// The number of bits behind each code, and the first value of the code.
fn codes(mut base: u32, plain: usize, bits: &[u32]) -> Vec<(u32, u32)> {
    let bits = std::iter::repeat_n(&0, plain).chain(bits);
    bits.map(|&bits| {
        let code = (base, bits);
        base += 1 << bits;
        code
    })
    .collect()
}

fn literal_codes() -> Vec<(u32, u32)> {
    let bits = [
        1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    codes(0, 16, &bits)
}

fn match_codes() -> Vec<(u32, u32)> {
    let bits = [
        1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    codes(3, 32, &bits)
}

/// The tables that need no description: literals, offsets, matches.
fn predefined(field: usize) -> Fse {
    let (log, counts): (_, &[i32]) = match field {
        0 => (
            6,
            &[
                4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1,
                1, 1, 1, 1, -1, -1, -1, -1,
            ],
        ),
        1 => (
            5,
            &[
                1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1,
                -1, -1,
            ],
        ),
        _ => (
            6,
            &[
                1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
            ],
        ),
    };
    Fse::new(log, counts.to_vec())
}

/// A Huffman code: for each symbol, its bits from the highest down and their number.
#[derive(Clone)]
struct Huffman {
    weights: Vec<u32>,
    codes: Vec<(u32, u32)>,
}

impl Huffman {
    fn random(rng: &mut SmallRng) -> Self {
        // Splits codes until there are enough.
        let mut lengths = vec![1_u32, 1];
        for _ in 0..rng.random_range(0..254) {
            let at = rng.random_range(0..lengths.len());
            if lengths[at] < 11 && lengths.len() < 254 {
                lengths[at] += 1;
                lengths.push(lengths[at]);
            }
        }
        let log = *lengths.iter().max().expect("there are two");
        let most = if rng.random() {
            256
        } else {
            128.max(lengths.len())
        };
        let mut weights = vec![0; most];
        for length in lengths {
            loop {
                let symbol = rng.random_range(0..most);
                if weights[symbol] == 0 {
                    weights[symbol] = log + 1 - length;
                    break;
                }
            }
        }
        while weights.last() == Some(&0) {
            weights.pop();
        }
        let mut codes = vec![(0, 0); weights.len()];
        let mut cell = 0;
        for weight in 1..=log {
            for symbol in (0..weights.len()).filter(|&symbol| weights[symbol] == weight) {
                codes[symbol] = (cell >> (weight - 1), log + 1 - weight);
                cell += 1 << (weight - 1);
            }
        }
        Self { weights, codes }
    }

    /// `None` if the description would be too long.
    fn description(&self, rng: &mut SmallRng) -> Option<Vec<u8>> {
        let (_, weights) = self.weights.split_last().expect("there are two");
        if weights.len() < 2 || weights.len() <= 128 && rng.random() {
            let mut bytes = vec![127 + weights.len() as u8];
            bytes.extend(
                weights
                    .chunks(2)
                    .map(|two| (two[0] << 4 | two.get(1).unwrap_or(&0)) as u8),
            );
            return Some(bytes);
        }
        // A table in which each weight occurs, including rare ones.
        let log = rng.random_range(5..=6);
        let mut counts = vec![0; *weights.iter().max().expect("there is one") as usize + 1];
        let mut left = 1 << log;
        // At least two, because no state would take bits otherwise.
        for &weight in weights.iter().chain(&[0]) {
            if counts[weight as usize] == 0 {
                counts[weight as usize] = if rng.random() { -1 } else { 1 };
                left -= 1;
            }
        }
        let most = (0..counts.len())
            .find(|&weight| counts[weight] == 1)
            .unwrap_or(weights[0] as usize);
        counts[most] = counts[most].max(0) + left + i32::from(counts[most] < 0);
        let table = Fse::new(log, counts);
        // Even and odd positions have a state each; the last two states are read to their symbols' end.
        let places = |from: usize| {
            weights
                .iter()
                .skip(from)
                .step_by(2)
                .copied()
                .collect::<Vec<_>>()
        };
        let paths = [table.path(&places(0)), table.path(&places(1))];
        let mut fields: Vec<_> = paths
            .iter()
            .map(|path| (path.first().copied().unwrap_or(0), log))
            .collect();
        for i in 0..weights.len() - 2 {
            let path = &paths[i % 2];
            fields.push(table.step(path[i / 2], path[i / 2 + 1]));
        }
        let mut bytes = vec![0];
        bytes.extend(table.description());
        bytes.extend(backward(&fields));
        bytes[0] = bytes.len() as u8 - 1;
        (bytes.len() <= 128).then_some(bytes)
    }

    fn stream(&self, symbols: &[u8]) -> Vec<u8> {
        backward(
            &symbols
                .iter()
                .map(|&symbol| self.codes[usize::from(symbol)])
                .collect::<Vec<_>>(),
        )
    }
}

/// State that later blocks may use again.
#[derive(Default)]
struct Frame {
    content: Vec<u8>,
    huffman: Option<Huffman>,
    tables: [Option<Fse>; 3],
}

struct Sequence {
    literals: u32,
    offset: u32,
    length: u32,
    /// Literals, offset, match.
    codes: [u32; 3],
    extra: [(u32, u32); 3],
}

impl Frame {
    /// A block's payload; its content has at most the given size.
    fn packed_block(
        &mut self,
        rng: &mut SmallRng,
        recent: &mut [u32; 3],
        sequences: u32,
        most: usize,
    ) -> Vec<u8> {
        let mut block = Vec::new();
        let literals_kind = rng.random_range(0..if self.huffman.is_some() { 4 } else { 3 });
        let mut description = Vec::new();
        if literals_kind == 2 {
            let (huffman, described) = std::iter::repeat_with(|| {
                let huffman = Huffman::random(rng);
                let described = huffman.description(rng)?;
                Some((huffman, described))
            })
            .find_map(|made| made)
            .expect("most are short enough");
            self.huffman = Some(huffman);
            description = described;
        }
        let alphabet: Vec<u8> = match (literals_kind, &self.huffman) {
            (0, _) => (0..=255).collect(),
            (1, _) => vec![rng.random()],
            (_, huffman) => {
                let huffman = huffman.as_ref().expect("there is one");
                let is_in = |symbol: &u8| {
                    huffman
                        .weights
                        .get(usize::from(*symbol))
                        .is_some_and(|&weight| weight > 0)
                };
                (0..=255).filter(is_in).collect()
            }
        };

        let mut modes = [0; 3];
        let mut descriptions = Vec::new();
        for field in 0..3 {
            let most_symbol = [35, 31, 52][field];
            modes[field] = rng.random_range(0..if self.tables[field].is_some() { 4 } else { 3 });
            let table = match modes[field] {
                0 => predefined(field),
                1 => Fse::single(rng.random_range(0..=most_symbol.min(20))),
                2 => {
                    let log = rng.random_range(5..=if field == 1 { 8 } else { 9 });
                    Fse::random(rng, log, most_symbol)
                }
                _ => continue,
            };
            match modes[field] {
                1 => descriptions.push(table.states[0].0 as u8),
                2 => descriptions.extend(table.description()),
                _ => {}
            }
            self.tables[field] = Some(table);
        }
        let tables: [Fse; 3] =
            std::array::from_fn(|field| self.tables[field].clone().expect("each has one"));

        let start = self.content.len();
        let mut literals = Vec::new();
        let mut chosen = Vec::new();
        while chosen.len() < sequences as usize {
            let room = most - (self.content.len() - start);
            let choice =
                (0..50).find_map(|_| sequence(rng, &tables, *recent, self.content.len(), room));
            let Some((sequence, next_recent)) = choice else {
                break;
            };
            *recent = next_recent;
            for _ in 0..sequence.literals {
                literals.push(alphabet[rng.random_range(0..alphabet.len())]);
            }
            self.content
                .extend(&literals[literals.len() - sequence.literals as usize..]);
            for _ in 0..sequence.length {
                self.content
                    .push(self.content[self.content.len() - sequence.offset as usize]);
            }
            chosen.push(sequence);
        }
        let room = most - (self.content.len() - start);
        let longest = [2, 50, 5000][rng.random_range(0..3)];
        for _ in 0..rng.random_range(0..longest).min(room) {
            let literal = alphabet[rng.random_range(0..alphabet.len())];
            literals.push(literal);
            self.content.push(literal);
        }

        self.put_literals(
            &mut block,
            rng,
            (literals_kind, alphabet[0]),
            description,
            &literals,
        );
        let count = chosen.len() as u32;
        match count {
            0..128 if rng.random() => block.push(count as u8),
            0..0x7f00 => block.extend([128 + (count >> 8) as u8, count as u8]),
            _ => {
                block.push(255);
                block.extend(((count - 0x7f00) as u16).to_le_bytes());
            }
        }
        if count > 0 {
            block.push((modes[0] << 6 | modes[1] << 4 | modes[2] << 2) as u8);
            block.extend(descriptions);
            block.extend(sequences_stream(&tables, &chosen));
        } else {
            // No table was described.
            for (table, mode) in self.tables.iter_mut().zip(modes) {
                if mode != 3 {
                    *table = None;
                }
            }
        }
        block
    }

    fn put_literals(
        &self,
        block: &mut Vec<u8>,
        rng: &mut SmallRng,
        (kind, byte): (u32, u8),
        description: Vec<u8>,
        literals: &[u8],
    ) {
        let size = literals.len() as u64;
        if kind < 2 {
            let (form, bytes, shift) = match size {
                0..32 if rng.random() => (0, 1, 3),
                0..4096 if rng.random() => (1, 2, 4),
                _ => (3, 3, 4),
            };
            block.extend(&(u64::from(kind) | form << 2 | size << shift).to_le_bytes()[..bytes]);
            if kind == 0 {
                block.extend(literals);
            } else {
                block.push(byte);
            }
            return;
        }
        let huffman = self.huffman.as_ref().expect("there is one");
        let single = [description.clone(), huffman.stream(literals)].concat();
        let (form, packed) =
            if literals.len() < 10 || size.max(single.len() as u64) < 1024 && rng.random() {
                (0, single)
            } else {
                let streams: Vec<_> = literals
                    .chunks(literals.len().div_ceil(4))
                    .map(|part| huffman.stream(part))
                    .collect();
                // The last part may be empty.
                let last = streams
                    .get(3)
                    .cloned()
                    .unwrap_or_else(|| huffman.stream(&[]));
                let sizes = streams[..3]
                    .iter()
                    .flat_map(|stream| (stream.len() as u16).to_le_bytes());
                let packed = [description, sizes.collect(), streams[..3].concat(), last].concat();
                let form = match packed.len().max(literals.len()) {
                    0..1024 if rng.random() => 1,
                    0..16384 => 2,
                    _ => 3,
                };
                (form, packed)
            };
        let (bytes, bits) = [(3, 10), (3, 10), (4, 14), (5, 18)][form as usize];
        let head = u64::from(kind) | form << 2 | size << 4 | (packed.len() as u64) << (4 + bits);
        block.extend(&head.to_le_bytes()[..bytes]);
        block.extend(packed);
    }
}

/// Any sequence that the tables have codes for and that gives at most `room` bytes, and the repeated offsets after it.
/// `None` if the drawn offset is invalid.
fn sequence(
    rng: &mut SmallRng,
    tables: &[Fse; 3],
    recent: [u32; 3],
    written: usize,
    room: usize,
) -> Option<(Sequence, [u32; 3])> {
    let codes: [u32; 3] = std::array::from_fn(|field| {
        let symbols = tables[field].symbols();
        symbols[rng.random_range(0..symbols.len())]
    });
    let mut draw = |(base, bits): (u32, u32)| {
        let extra = rng.random_range(0..1_u32 << bits);
        (base + extra, (extra, bits))
    };
    let (literals, literals_extra) = draw(literal_codes()[codes[0] as usize]);
    let (coded, offset_extra) = draw((1 << codes[1], codes[1]));
    let (length, length_extra) = draw(match_codes()[codes[2] as usize]);
    let [first, second, third] = recent;
    let (offset, recent) = match (coded, literals) {
        (1, 1..) => (first, recent),
        (1, 0) | (2, 1..) => (second, [second, first, third]),
        (2, 0) | (3, 1..) => (third, [third, first, second]),
        (3, 0) => (first - 1, [first - 1, first, second]),
        _ => (coded - 3, [coded - 3, first, second]),
    };
    let fits = (literals + length) as usize <= room;
    let is_there = offset > 0 && offset as usize <= written + literals as usize;
    let extra = [literals_extra, offset_extra, length_extra];
    (fits && is_there).then_some((
        Sequence {
            literals,
            offset,
            length,
            codes,
            extra,
        },
        recent,
    ))
}

fn sequences_stream(tables: &[Fse; 3], sequences: &[Sequence]) -> Vec<u8> {
    let paths: [Vec<u32>; 3] = std::array::from_fn(|field| {
        let symbols: Vec<_> = sequences
            .iter()
            .map(|sequence| sequence.codes[field])
            .collect();
        tables[field].path(&symbols)
    });
    let mut fields: Vec<_> = (0..3)
        .map(|field| (paths[field][0], tables[field].log))
        .collect();
    for (i, sequence) in sequences.iter().enumerate() {
        fields.extend([sequence.extra[1], sequence.extra[2], sequence.extra[0]]);
        if i + 1 < sequences.len() {
            fields.extend(
                [0, 2, 1].map(|field| tables[field].step(paths[field][i], paths[field][i + 1])),
            );
        }
    }
    backward(&fields)
}

/// A frame and its content.
fn frame(seed: u64, sequences: u32) -> (Vec<u8>, Vec<u8>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut frame = Frame::default();
    let mut recent = [1, 4, 8];
    let mut blocks: Vec<u8> = Vec::new();
    let window_log = if sequences > 300 {
        17
    } else {
        [10, 13, 17][rng.random_range(0..3)]
    };
    let most = 1 << window_log;
    let count = rng.random_range(1..6);
    for i in 0..count {
        let is_last = u32::from(i + 1 == count);
        let mut put = |kind: u32, size: usize, payload: &[u8]| {
            blocks.extend(&(is_last | kind << 1 | (size as u32) << 3).to_le_bytes()[..3]);
            blocks.extend(payload);
        };
        match rng.random_range(0..6) {
            0 => {
                let payload: Vec<u8> = (0..rng.random_range(0..300))
                    .map(|_| rng.random())
                    .collect();
                put(0, payload.len(), &payload);
                frame.content.extend(payload);
            }
            1 => {
                let (size, byte) = (rng.random_range(0..300), rng.random());
                put(1, size, &[byte]);
                frame.content.extend(std::iter::repeat_n(byte, size));
            }
            _ => {
                let start = frame.content.len();
                let number = if rng.random_ratio(1, 4) {
                    0
                } else {
                    rng.random_range(0..=sequences)
                };
                let (recent_before, number) =
                    (recent, if sequences > 300 { sequences } else { number });
                let payload = frame.packed_block(&mut rng, &mut recent, number, most);
                if payload.len() <= most {
                    put(2, payload.len(), &payload);
                } else {
                    // Stored uncompressed, so that the block is not larger than allowed; its offsets do not count.
                    recent = recent_before;
                    (frame.huffman, frame.tables) = Default::default();
                    put(0, frame.content.len() - start, &frame.content[start..]);
                }
            }
        }
    }
    let content = frame.content;
    let size_form = match content.len() {
        256..65792 if rng.random() => 1,
        _ => [0, 2, 3][rng.random_range(0..3)],
    };
    let (has_checksum, dictionary_form) = (rng.random_range(0..2_u8), rng.random_range(0..4_u8));
    let mut made = 0xfd2f_b528_u32.to_le_bytes().to_vec();
    made.extend([
        size_form << 6 | has_checksum << 2 | dictionary_form,
        (window_log - 10) << 3,
    ]);
    // A dictionary number of 0 means that there is no dictionary.
    made.extend(&[0; 4][..[0, 1, 2, 4][usize::from(dictionary_form)]]);
    let size = content.len() as u64 - if size_form == 1 { 256 } else { 0 };
    made.extend(&size.to_le_bytes()[..[0, 2, 4, 8][usize::from(size_form)]]);
    made.extend(blocks);
    if has_checksum == 1 {
        made.extend((twox_hash::XxHash64::oneshot(0, &content) as u32).to_le_bytes());
    }
    (made, content)
}

fn check(frame: &[u8], content: &[u8]) -> TestCaseResult {
    prop_assert!(by_library(frame, content.len()).is_some_and(|out| out == content));
    prop_assert!(decompress(frame, content.len()).is_ok_and(|out| out == content));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rockmill_testkit::machine::few_cases(if cfg!(debug_assertions) { 500 } else { 10_000 })))]

    #[test]
    fn we_read_what_the_format_allows(seed in any::<u64>()) {
        let (frame, content) = frame(seed, 200);
        check(&frame, &content)?;
    }

    #[test]
    fn damaged_tables_are_refused_or_the_librarys(
        seed in any::<u64>(), flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 1..4)
    ) {
        let (mut frame, content) = frame(seed, 20);
        for (at, bit) in flips {
            *at.get_mut(&mut frame) ^= 1 << bit;
        }
        check_verdict(&frame, content.len())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rockmill_testkit::machine::few_cases(400)))]

    #[test]
    fn a_warp_reads_what_the_format_allows(seed in any::<u64>(), is_reversed in any::<bool>()) {
        let (frame, content) = frame(seed, 100);
        let mut out = vec![0; content.len()];
        prop_assert!(lanes::zstd_decompress(is_reversed, &frame, &mut out) && out == content);
    }
}

/// Up to a count that takes three bytes.
#[test]
fn any_number_of_sequences_is_read() {
    let mut rng = SmallRng::seed_from_u64(0);
    let tables: [Fse; 3] = std::array::from_fn(|_| Fse::single(0));
    for count in [1, 127, 128, 0x7eff, 0x7f00, 40_000] {
        let mut content = b"abcdefgh".to_vec();
        let mut recent = [1, 4, 8];
        for _ in 0..count {
            let (sequence, next) =
                sequence(&mut rng, &tables, recent, content.len(), 3).expect("it fits");
            let from = content.len() - sequence.offset as usize;
            (0..3).for_each(|i| content.push(content[from + i]));
            recent = next;
        }
        let number = match count {
            0..128 => vec![count as u8],
            128..0x7f00 => vec![128 + (count >> 8) as u8, count as u8],
            _ => [&[255], &((count - 0x7f00) as u16).to_le_bytes()[..]].concat(),
        };
        let packed = [&[0][..], &number, &[0b01_01_01_00, 0, 0, 0, 1]].concat();
        let raw = [&[8 << 3, 0, 0], &content[..8]].concat();
        let mut frame = one_block(&packed);
        frame.splice(6..6, raw);
        check(&frame, &content).expect("it is sound");
    }
}

/// A frame of one packed block.
fn one_block(payload: &[u8]) -> Vec<u8> {
    const WINDOW: u8 = 7 << 3;
    let mut frame = 0xfd2f_b528_u32.to_le_bytes().to_vec();
    frame.extend([0, WINDOW]);
    frame.extend(&(1 | 2 << 1 | (payload.len() as u32) << 3).to_le_bytes()[..3]);
    frame.extend(payload);
    frame
}

/// Four literals and a match of three bytes from the last one.
fn one_sequence(modes: u8) -> Vec<u8> {
    let tables: [Fse; 3] = std::array::from_fn(predefined);
    let sequence = Sequence {
        literals: 4,
        offset: 1,
        length: 3,
        codes: [4, 0, 0],
        extra: [(0, 0); 3],
    };
    let stream = sequences_stream(&tables, &[sequence]);
    one_block(&[&[4 << 3], &b"abcd"[..], &[1, modes], &stream].concat())
}

#[test]
fn tables_that_were_never_given_are_refused() {
    check(&one_sequence(0), b"abcdddd").expect("it is sound");
    for field in [2, 4, 6] {
        let frame = one_sequence(3 << field);
        assert_eq!(by_library(&frame, 7), None);
        assert!(decompress(&frame, 7).is_err());
    }
    // A literal in the code of an earlier block.
    refuse_literal(3, &[2]);
}

#[test]
fn huffman_codes_without_a_longest_pair_are_refused() {
    refuse_literal(2, &[128, 2 << 4, 2]);
}

/// The remainder for the last symbol must be a power of 2.
#[test]
fn huffman_codes_that_do_not_add_up_are_refused() {
    refuse_literal(2, &[130, 1 << 4 | 2, 2 << 4, 2]);
}

/// A block of some literals in one stream, behind their table or without one, and no sequences.
fn literals_block(kind: u32, size: u32, packed: &[u8]) -> Vec<u8> {
    let head = kind | size << 4 | (packed.len() as u32) << 14;
    [&head.to_le_bytes()[..3], packed, &[0]].concat()
}

fn refuse_literal(kind: u32, packed: &[u8]) {
    let frame = one_block(&literals_block(kind, 1, packed));
    assert_eq!(by_library(&frame, 1), None);
    assert!(decompress(&frame, 1).is_err());
}

/// The source's size bounds the work, even if each block builds a table and gives no content.
#[test]
fn blocks_that_give_nothing_end() {
    let mut rng = SmallRng::seed_from_u64(0);
    let huffman = Huffman {
        weights: vec![11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1],
        codes: Vec::new(),
    };
    let direct = std::iter::repeat_with(|| huffman.description(&mut rng))
        .flatten()
        .find(|described| described[0] >= 128)
        .expect("half are so");
    let mut frame = one_block(&literals_block(2, 0, &[&direct[..], &[1]].concat()));
    let block = one_block(&literals_block(3, 0, &[1])).split_off(6);
    for _ in 0..10_000 {
        let last = frame.len();
        frame.extend(&block);
        frame[last] &= !1;
    }
    frame[6] &= !1;
    frame.extend(&block);
    check(&frame, &[]).expect("it is sound");
}
