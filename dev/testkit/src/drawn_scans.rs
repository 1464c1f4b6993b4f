//! Plans and rows of scans, drawn from bytes. Depends only on core, so that fuzzing, a workspace of its own, can include
//! it by its path.

#![allow(missing_docs, reason = "names of plain records and constants")]

use rockmill_core::scan::{
    Aggregate, Aggregation, Calendar, Check, ColumnType, Comparison, Instruction, IntegerRange,
    Json, JsonType, Literal, Number, NumberFormat, Operation, OutputColumn, PackedDecimal, Pattern,
    PatternPart, Prefix, Register, ScanOutput, ScanPlan, StringGroups, ValueKind, lies_in_groups,
};

/// The first instructions of a drawn plan.
const FIRST: [(Instruction, ValueKind); 4] = [
    (Instruction::Key, ValueKind::Bytes),
    (Instruction::Value, ValueKind::Bytes),
    (
        Instruction::Constant(Literal::Integer(0)),
        ValueKind::Integer,
    ),
    (
        Instruction::Constant(Literal::Boolean(true)),
        ValueKind::Boolean,
    ),
];

/// Register of the second of them.
const VALUE: Register = 1;

/// Names of members of JSON objects.
const NAMES: [&str; 4] = ["a", "b", "", "\"é"];

/// Bytes of more parts than this may be JSON.
const MAX_SMALL: usize = 6;

/// Returns bytes one after another, and zeros behind the last.
pub struct Draw<'a>(pub &'a [u8]);

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    fn below(&mut self, n: usize) -> usize {
        match n {
            0..=256 => usize::from(self.byte()) % n.max(1),
            _ => (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n,
        }
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn integer(&mut self) -> i128 {
        let small = i128::from(self.byte());
        match self.below(10) {
            0..=4 => small % 24,
            5 => -small % 24,
            6 => 1 << (small % 127),
            7 => -1 << (small % 128),
            8 => self.one_of(&[
                i128::MAX,
                i128::MIN,
                i128::from(u64::MAX),
                i128::from(i64::MIN),
            ]),
            _ => (0..16).fold(0, |n: i128, _| n << 8 | i128::from(self.byte())),
        }
    }

    /// Bytes of few kinds, so that some occur in others; some are characters of UTF-8, or parts of them.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        if most > MAX_SMALL && self.below(4) == 0 {
            return self.json();
        }
        const PIECES: [&[u8]; 12] = [
            b"a",
            b"b",
            b"ab",
            b"\0",
            b"\x7f",
            b"\xff",
            b"\xc3\xa9",
            b"\xe2\x82\xac",
            b"\xe2\x82",
            b"\xf0\x9f\xa6\x80",
            b"\xed\xa0\x80",
            b"\xac",
        ];
        let mut bytes = Vec::new();
        for _ in 0..self.below(most + 1) {
            match self.below(PIECES.len() + 4) {
                piece if piece < PIECES.len() => bytes.extend_from_slice(PIECES[piece]),
                _ => bytes.push(self.byte()),
            }
        }
        bytes
    }

    /// A JSON object, or nearly one.
    fn json(&mut self) -> Vec<u8> {
        const VALUES: [&str; 22] = [
            "0",
            "-7",
            "300",
            "18446744073709551615",
            "1.5",
            "-0.25",
            "12.30",
            "1e2",
            "25E-1",
            "null",
            "true",
            "false",
            "\"\"",
            "\"a b\"",
            "\"1.5\"",
            "\"-02.50\"",
            "\"\\u00e9\\n\\\"}\"",
            "[1,[2],{\"a\":3}]",
            "{ }",
            "{\"a\":\"]}\"}",
            "\"é\"",
            "01",
        ];
        let mut json = String::from("{");
        for place in 0..self.below(5) {
            let name = self.one_of(&NAMES).replace('"', "\\\"");
            let spaces = self.one_of(&["", " ", "\n\t"]);
            let value = self.one_of(&VALUES);
            let comma = if place == 0 { "" } else { "," };
            json += &format!("{comma}{spaces}\"{name}\"{spaces}:{value}{spaces}");
        }
        json += self.one_of(&["}", "}", "}", "} ", "", "}}"]);
        json.into_bytes()
    }

    fn takes(&mut self) -> Json {
        let of_type = match self.below(5) {
            0 => JsonType::Boolean,
            1 => JsonType::Integer {
                bytes: self.one_of(&[1, 2, 4, 8]),
                is_signed: self.below(2) == 0,
            },
            2 => JsonType::Float {
                bytes: self.one_of(&[4, 8]),
            },
            3 => {
                let precision = 1 + self.below(38) as u8;
                let scale = self.below(usize::from(precision) + 1) as u8;
                JsonType::Decimal { precision, scale }
            }
            _ => JsonType::Text,
        };
        let name = self.one_of(&NAMES).to_owned();
        match self.below(8) {
            0 => Json::IsObject,
            1 => Json::Has(name),
            _ => Json::Member(name, of_type),
        }
    }

    fn literal(&mut self, kind: ValueKind) -> Literal {
        match kind {
            ValueKind::Boolean => Literal::Boolean(self.below(2) == 0),
            ValueKind::Integer => Literal::Integer(self.integer()),
            ValueKind::Bytes => Literal::Bytes(self.bytes(4)),
        }
    }

    fn range(&mut self) -> IntegerRange {
        match self.below(3) {
            0 => IntegerRange::WrapSigned {
                bytes: self.one_of(&[1, 2, 4, 8, 16]),
            },
            1 => IntegerRange::WrapUnsigned {
                bytes: self.one_of(&[1, 2, 4, 8]),
            },
            _ => IntegerRange::Exact,
        }
    }

    fn prefix(&mut self) -> Prefix {
        let number = Number {
            bytes: self.one_of(&[1, 2, 4, 8]),
            is_big_endian: self.below(2) == 0,
            format: NumberFormat::Unsigned,
        };
        self.one_of(&[Prefix::Varint, Prefix::Number(number)])
    }

    fn number(&mut self) -> Number {
        let format = self.one_of(&[
            NumberFormat::Unsigned,
            NumberFormat::Signed,
            NumberFormat::SignedInverted,
            NumberFormat::Float,
        ]);
        let sizes: &[u8] = match format {
            NumberFormat::Unsigned => &[1, 2, 3, 4, 5, 6, 7, 8],
            NumberFormat::Signed | NumberFormat::SignedInverted => &[1, 2, 3, 4, 5, 8, 16],
            NumberFormat::Float => &[4, 8],
        };
        Number {
            bytes: self.one_of(sizes),
            is_big_endian: self.below(2) == 0,
            format,
        }
    }

    fn groups(&mut self) -> StringGroups {
        let bytes = self.one_of(&[1, 2, 3, 8]);
        self.one_of(&[StringGroups::Counted, StringGroups::Padded { bytes }])
    }

    fn pattern(&mut self) -> Pattern {
        match self.below(6) {
            0 => Pattern::Prefix(self.bytes(2)),
            1 => Pattern::Suffix(self.bytes(2)),
            2 => Pattern::Contains(self.bytes(2)),
            _ => {
                let part = |draw: &mut Self| match draw.below(3) {
                    0 => PatternPart::Bytes(draw.bytes(2)),
                    1 => PatternPart::AnyCharacter,
                    _ => PatternPart::AnyBytes,
                };
                let parts = self.below(6);
                Pattern::Parts((0..parts).map(|_| part(self)).collect())
            }
        }
    }

    /// A sound plan, of a kind that kernels run too unless it is for the CPU. It draws some two bytes for each
    /// instruction.
    pub fn plan(&mut self, is_for_cpu: bool) -> ScanPlan {
        self.plan_with(is_for_cpu, &[])
    }

    /// The same with instructions that follow those of `FIRST`.
    pub fn plan_with(&mut self, is_for_cpu: bool, with: &[(Instruction, ValueKind)]) -> ScanPlan {
        let first = FIRST.into_iter().chain(with.iter().cloned());
        let (instructions, kinds) = first.unzip();
        let mut program = Program {
            is_for_cpu,
            instructions,
            kinds,
        };
        for _ in 0..self.below(20) {
            self.instruction(&mut program);
        }
        let filter = (self.below(4) > 0).then(|| self.register(&program, ValueKind::Boolean));
        let output = match self.below(2) {
            0 => ScanOutput::Rows(self.columns(&program)),
            _ => ScanOutput::Groups(Aggregation {
                keys: self.columns(&program),
                aggregates: (0..self.below(4))
                    .map(|_| self.aggregate(&program))
                    .collect(),
                max_groups: 1 + self.below(8) as u32,
            }),
        };
        let check = |draw: &mut Self| Check {
            holds: draw.register(&program, ValueKind::Boolean),
            what: String::new(),
            counts: true,
        };
        ScanPlan {
            checks: (0..self.below(3)).map(|_| check(self)).collect(),
            instructions: program.instructions,
            filter,
            output,
        }
    }

    /// A result of a kind, most often a late one.
    fn register(&mut self, program: &Program, kind: ValueKind) -> Register {
        let of_kind: Vec<_> = (0..program.kinds.len())
            .filter(|&i| program.kinds[i] == kind)
            .collect();
        let back = self.below(of_kind.len()).min(self.below(of_kind.len()));
        of_kind[of_kind.len() - 1 - back] as Register
    }

    /// Bytes from which kernels read numbers and strings, too, unless the plan is for the CPU.
    fn stored(&mut self, program: &Program) -> Register {
        let drawn = self.register(program, ValueKind::Bytes);
        let in_groups = lies_in_groups(&program.instructions);
        match in_groups[usize::from(drawn)] && !program.is_for_cpu {
            true => VALUE,
            false => drawn,
        }
    }

    fn kind(&mut self) -> ValueKind {
        self.one_of(&[ValueKind::Integer, ValueKind::Bytes, ValueKind::Boolean])
    }

    fn instruction(&mut self, program: &mut Program) {
        use ValueKind::{Boolean, Bytes, Integer};
        let (instruction, kind) = match self.below(28) {
            0 => {
                let kind = self.kind();
                let literal = match self.below(4) {
                    0 => Literal::Null(kind),
                    _ => self.literal(kind),
                };
                (Instruction::Constant(literal), kind)
            }
            1 => (Instruction::Length(self.register(program, Bytes)), Integer),
            2 | 3 => {
                let load = Instruction::Load {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    number: self.number(),
                };
                (load, Integer)
            }
            4 => {
                let slice = Instruction::Slice {
                    from: self.register(program, Bytes),
                    at: self.register(program, Integer),
                    length: self.register(program, Integer),
                };
                (slice, Bytes)
            }
            5..=7 => {
                let kind = self.kind();
                let compare = Instruction::Compare {
                    comparison: self.one_of(&[
                        Comparison::Equal,
                        Comparison::NotEqual,
                        Comparison::Less,
                        Comparison::LessOrEqual,
                        Comparison::Greater,
                        Comparison::GreaterOrEqual,
                    ]),
                    left: self.register(program, kind),
                    right: self.register(program, kind),
                };
                (compare, Boolean)
            }
            8 => {
                let (left, right) = (
                    self.register(program, Boolean),
                    self.register(program, Boolean),
                );
                (Instruction::And(left, right), Boolean)
            }
            9 => {
                let (left, right) = (
                    self.register(program, Boolean),
                    self.register(program, Boolean),
                );
                (Instruction::Or(left, right), Boolean)
            }
            10 => (Instruction::Not(self.register(program, Boolean)), Boolean),
            11 => {
                let kind = self.kind();
                (Instruction::IsNull(self.register(program, kind)), Boolean)
            }
            12 => {
                let of = self.register(program, Bytes);
                let pattern = self.pattern();
                (Instruction::Like { of, pattern }, Boolean)
            }
            13 => {
                let kind = self.kind();
                let of = self.register(program, kind);
                let mut values: Vec<_> = (0..self.below(6)).map(|_| self.literal(kind)).collect();
                values.sort();
                values.dedup();
                (Instruction::OneOf { of, values }, Boolean)
            }
            14 => {
                let prefixed = Instruction::Prefixed {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    prefix: self.prefix(),
                };
                (prefixed, Bytes)
            }
            15 => {
                let after = Instruction::AfterPrefixed {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    prefix: self.prefix(),
                    count: 1 + self.below(3) as u16,
                };
                (after, Integer)
            }
            16 => {
                let bit = Instruction::Bit {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                };
                (bit, Boolean)
            }
            17 => {
                let kind = self.kind();
                let select = Instruction::Select {
                    when: self.register(program, Boolean),
                    then: self.register(program, kind),
                    otherwise: self.register(program, kind),
                };
                (select, kind)
            }
            18 => {
                let precision = 1 + self.below(38) as u8;
                let scale = self.below(usize::from(precision) + 1) as u8;
                let decimal = Instruction::Decimal {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    decimal: PackedDecimal { precision, scale },
                };
                (decimal, Integer)
            }
            19 => {
                let date = Instruction::Date {
                    of: self.register(program, Integer),
                    calendar: self.one_of(&[Calendar::Day, Calendar::Second]),
                };
                (date, Integer)
            }
            20 => (Instruction::TrimEnd(self.register(program, Bytes)), Bytes),
            21 => {
                let size = Instruction::StringSize {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    groups: self.groups(),
                };
                (size, Integer)
            }
            22 => (Instruction::Text(self.register(program, Bytes)), Bytes),
            23 => {
                let groups = self.groups();
                let string = Instruction::String {
                    from: self.stored(program),
                    at: self.register(program, Integer),
                    groups,
                    spaces: (groups != StringGroups::Counted)
                        .then(|| self.register(program, Integer)),
                };
                (string, Bytes)
            }
            24 if program.is_for_cpu => (Instruction::Latin1(self.register(program, Bytes)), Bytes),
            25 | 26 if program.is_for_cpu => {
                let takes = self.takes();
                let kind = match &takes {
                    Json::Member(_, JsonType::Text) => Bytes,
                    Json::IsObject | Json::Has(_) | Json::Member(_, JsonType::Boolean) => Boolean,
                    Json::Member(..) => Integer,
                };
                let any = self.register(program, Bytes);
                let from = self.one_of(&[VALUE, any]);
                (Instruction::Json { from, takes }, kind)
            }
            _ => {
                let arithmetic = Instruction::Arithmetic {
                    operation: self.one_of(&[
                        Operation::Add,
                        Operation::Subtract,
                        Operation::Multiply,
                    ]),
                    left: self.register(program, Integer),
                    right: self.register(program, Integer),
                    range: self.range(),
                };
                (arithmetic, Integer)
            }
        };
        program.instructions.push(instruction);
        program.kinds.push(kind);
    }

    fn columns(&mut self, program: &Program) -> Vec<OutputColumn> {
        (0..self.below(4)).map(|_| self.column(program)).collect()
    }

    fn column(&mut self, program: &Program) -> OutputColumn {
        let kind = self.kind();
        OutputColumn {
            register: self.register(program, kind),
            stored: match (kind, self.below(3)) {
                (ValueKind::Boolean, _) => ColumnType::Boolean,
                (ValueKind::Bytes, _) => ColumnType::Bytes,
                (ValueKind::Integer, 0) => ColumnType::Float {
                    bytes: self.one_of(&[4, 8]),
                },
                (ValueKind::Integer, _) => ColumnType::Integer {
                    bytes: self.one_of(&[1, 2, 4, 8, 16]),
                },
            },
        }
    }

    fn aggregate(&mut self, program: &Program) -> Aggregate {
        match self.below(5) {
            0 => Aggregate::Count(None),
            1 => {
                let kind = self.kind();
                Aggregate::Count(Some(self.register(program, kind)))
            }
            2 => Aggregate::Sum {
                of: self.register(program, ValueKind::Integer),
                range: self.range(),
                stored: ColumnType::Integer {
                    bytes: self.one_of(&[8, 16]),
                },
            },
            3 => Aggregate::Min(self.column(program)),
            _ => Aggregate::Max(self.column(program)),
        }
    }
}

struct Program {
    is_for_cpu: bool,
    instructions: Vec<Instruction>,
    kinds: Vec<ValueKind>,
}
