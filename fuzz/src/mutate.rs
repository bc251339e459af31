//! Damage, reproducibly: the same seed gives the same bytes on every machine.

/// Makes inputs out of seeds. xorshift64*, Vigna 2016; quality matters little here, sameness does.
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

/// Numbers parsers trip over.
const INTERESTING: [u32; 10] = [0, 1, 7, 24, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

impl Mutator {
    /// Inputs of this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// The next input: one of the seeds with damage, two of them spliced, or noise.
    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = match self.below(8) {
            0 => (0..self.below(300)).map(|_| self.draw() as u8).collect(),
            1 => {
                let (head, tail) = (self.pick(seeds), self.pick(seeds));
                let (at, from) = (self.below(head.len() + 1), self.below(tail.len() + 1));
                [&head[..at], &tail[from..]].concat()
            }
            _ => self.pick(seeds),
        };
        for _ in 0..self.below(6) {
            self.damage(&mut bytes);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, self.draw() as u8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            4 if at + 4 <= bytes.len() => {
                let number = INTERESTING[self.below(INTERESTING.len())];
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
            5 if bytes.len() < 4096 => {
                let copy = bytes[at..(at + self.below(64)).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {}
        }
    }

    fn pick(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if seeds.is_empty() { Vec::new() } else { seeds[self.below(seeds.len())].clone() }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound.max(1) as u64) as usize
    }

    fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
