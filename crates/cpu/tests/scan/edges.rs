//! Each instruction at its edges.

use rockmill_core::ErrorKind;
use rockmill_core::scan::{
    ColumnType, Comparison, Instruction, IntegerRange, Literal, Number, NumberFormat, Operation,
    OutputColumn, Pattern, PatternPart, Register, ScanOutput, ScanPlan, ValueKind,
};

use super::scan;

const NULL: Option<Literal> = None;

fn int(integer: i128) -> Literal {
    Literal::Integer(integer)
}

fn bytes(bytes: &[u8]) -> Literal {
    Literal::Bytes(bytes.to_vec())
}

/// The result of the last instruction for a row with a value; the lowest 128 bits of an integer.
fn result_of(instructions: Vec<Instruction>, value: &[u8]) -> Option<Literal> {
    let register = instructions.len() as Register - 1;
    let mut plan = ScanPlan {
        checks: Vec::new(),
        instructions,
        ..ScanPlan::default()
    };
    let kind = *plan
        .kinds()
        .expect("it is sound")
        .last()
        .expect("it has some");
    let stored = match kind {
        ValueKind::Boolean => ColumnType::Boolean,
        ValueKind::Integer => ColumnType::Integer { bytes: 16 },
        ValueKind::Bytes => ColumnType::Bytes,
    };
    plan.output = ScanOutput::Rows(vec![OutputColumn { register, stored }]);
    let rows = [(b"key".to_vec(), value.to_vec())];
    let (batches, _) = scan(&plan, &rows).expect("it has a result");
    let column = &batches[0].columns[0];
    if column.validity.is_some() {
        return None;
    }
    Some(match kind {
        ValueKind::Boolean => Literal::Boolean(column.values == [1]),
        ValueKind::Integer => int(i128::from_le_bytes(
            column.values[..].try_into().expect("16 bytes"),
        )),
        ValueKind::Bytes => bytes(&column.values),
    })
}

/// The result of an instruction with these operands.
fn apply(operands: &[Literal], of: impl Fn(&[Register]) -> Instruction) -> Option<Literal> {
    let mut instructions: Vec<_> = operands
        .iter()
        .cloned()
        .map(Instruction::Constant)
        .collect();
    let registers: Vec<_> = (0..operands.len() as Register).collect();
    instructions.push(of(&registers));
    result_of(instructions, b"")
}

fn boolean(value: Option<bool>) -> Literal {
    value.map_or(Literal::Null(ValueKind::Boolean), Literal::Boolean)
}

#[test]
fn booleans_have_three_values() {
    const ALL: [Option<bool>; 3] = [Some(false), None, Some(true)];
    // False, null and true in this order: And is the least, Or the greatest.
    for (i, left) in ALL.into_iter().enumerate() {
        for (j, right) in ALL.into_iter().enumerate() {
            let operands = [boolean(left), boolean(right)];
            let and = apply(&operands, |r| Instruction::And(r[0], r[1]));
            let or = apply(&operands, |r| Instruction::Or(r[0], r[1]));
            assert_eq!(
                and,
                ALL[i.min(j)].map(Literal::Boolean),
                "{left:?} and {right:?}"
            );
            assert_eq!(
                or,
                ALL[i.max(j)].map(Literal::Boolean),
                "{left:?} or {right:?}"
            );
        }
        let not = apply(&[boolean(left)], |r| Instruction::Not(r[0]));
        assert_eq!(not, left.map(|left| Literal::Boolean(!left)));
        let is_null = apply(&[boolean(left)], |r| Instruction::IsNull(r[0]));
        assert_eq!(is_null, Some(Literal::Boolean(left.is_none())));
    }
}

#[test]
fn null_makes_null() {
    let null = |kind| Literal::Null(kind);
    let (no_int, no_bytes) = (null(ValueKind::Integer), null(ValueKind::Bytes));
    let number = Number {
        bytes: 1,
        is_big_endian: false,
        format: NumberFormat::Unsigned,
    };
    let load = |r: &[Register]| Instruction::Load {
        from: r[0],
        at: r[1],
        number,
    };
    let slice = |r: &[Register]| Instruction::Slice {
        from: r[0],
        at: r[1],
        length: r[2],
    };
    let add = |r: &[Register]| Instruction::Arithmetic {
        operation: Operation::Add,
        left: r[0],
        right: r[1],
        range: IntegerRange::Exact,
    };
    let equal = |r: &[Register]| Instruction::Compare {
        comparison: Comparison::Equal,
        left: r[0],
        right: r[1],
    };
    let like = |r: &[Register]| Instruction::Like {
        of: r[0],
        pattern: Pattern::Parts(vec![PatternPart::AnyBytes]),
    };
    let one_of = |r: &[Register]| Instruction::OneOf {
        of: r[0],
        values: vec![int(1)],
    };
    assert_eq!(apply(&[no_bytes.clone(), int(0)], load), NULL);
    assert_eq!(apply(&[bytes(b"a"), no_int.clone()], load), NULL);
    assert_eq!(apply(&[no_bytes.clone(), int(0), int(0)], slice), NULL);
    assert_eq!(apply(&[bytes(b"a"), no_int.clone(), int(0)], slice), NULL);
    assert_eq!(apply(&[bytes(b"a"), int(0), no_int.clone()], slice), NULL);
    assert_eq!(apply(&[no_int.clone(), int(0)], add), NULL);
    assert_eq!(apply(&[int(0), no_int.clone()], add), NULL);
    assert_eq!(apply(&[no_int.clone(), no_int.clone()], equal), NULL);
    assert_eq!(apply(std::slice::from_ref(&no_bytes), like), NULL);
    assert_eq!(apply(std::slice::from_ref(&no_int), one_of), NULL);
    assert_eq!(apply(&[no_bytes], |r| Instruction::Length(r[0])), NULL);
}

#[test]
fn numbers_are_loaded_from_inside_only() {
    let load = |at: i128, number: Number, value: &[u8]| {
        let at = Instruction::Constant(int(at));
        let load = Instruction::Load {
            from: 0,
            at: 1,
            number,
        };
        result_of(vec![Instruction::Value, at, load], value)
    };
    for bytes in [1u8, 2, 4, 8, 16] {
        let number = Number {
            bytes,
            is_big_endian: true,
            format: NumberFormat::Signed,
        };
        let value = [0x11; 20];
        let last = 20 - i128::from(bytes);
        for at in [0, 1, last] {
            let expected = [0x11; 16]
                .map(i128::from)
                .into_iter()
                .take(usize::from(bytes));
            let expected = expected.fold(0, |n, byte| n << 8 | byte);
            assert_eq!(load(at, number, &value), Some(int(expected)));
        }
        for at in [-1, last + 1, 20, 21, i128::MAX, i128::MIN, 1 << 64, 1 << 32] {
            assert_eq!(load(at, number, &value), NULL, "{bytes} bytes at {at}");
        }
    }
}

#[test]
fn slices_lie_inside() {
    let slice = |at: i128, length: i128| {
        apply(&[bytes(b"abcd"), int(at), int(length)], |r| {
            Instruction::Slice {
                from: r[0],
                at: r[1],
                length: r[2],
            }
        })
    };
    assert_eq!(slice(0, 4), Some(bytes(b"abcd")));
    assert_eq!(slice(1, 2), Some(bytes(b"bc")));
    assert_eq!(slice(4, 0), Some(bytes(b"")));
    for (at, length) in [
        (0, 5),
        (4, 1),
        (5, 0),
        (-1, 1),
        (1, -1),
        (i128::MAX, i128::MAX),
        (1, i128::from(u64::MAX)),
        (i128::from(u64::MAX), 1),
        (1 << 64, 0),
    ] {
        assert_eq!(slice(at, length), NULL, "{length} from {at}");
    }
    // A slice of a slice.
    let inner = |at, length| {
        let constant = |integer| Instruction::Constant(int(integer));
        let slice = |from, at, length| Instruction::Slice { from, at, length };
        let instructions = vec![
            Instruction::Value,
            constant(1),
            constant(2),
            slice(0, 1, 2),
            constant(at),
            constant(length),
            slice(3, 4, 5),
        ];
        result_of(instructions, b"abcd")
    };
    assert_eq!(inner(1, 1), Some(bytes(b"c")));
    assert_eq!(inner(1, 2), NULL);
}

#[test]
fn every_format_reads_its_extremes() {
    let load = |format, is_big_endian, stored: &[u8]| {
        let number = Number {
            bytes: stored.len() as u8,
            is_big_endian,
            format,
        };
        let zero = Instruction::Constant(int(0));
        let load = Instruction::Load {
            from: 0,
            at: 1,
            number,
        };
        match result_of(vec![Instruction::Value, zero, load], stored) {
            Some(Literal::Integer(integer)) => integer,
            other => panic!("{other:?}"),
        }
    };
    use NumberFormat::{Float, Signed, SignedInverted, Unsigned};
    macro_rules! check {
        ($($signed:ty, $unsigned:ty;)+) => {$(
            for integer in [<$signed>::MIN, -1, 0, 1, 0x12, <$signed>::MAX] {
                let (little, big) = (integer.to_le_bytes(), integer.to_be_bytes());
                assert_eq!(load(Signed, false, &little), integer as i128);
                assert_eq!(load(Signed, true, &big), integer as i128);
                let inverted = integer ^ <$signed>::MIN;
                assert_eq!(load(SignedInverted, false, &inverted.to_le_bytes()), integer as i128);
                assert_eq!(load(SignedInverted, true, &inverted.to_be_bytes()), integer as i128);
                if size_of::<$signed>() < 16 {
                    assert_eq!(load(Unsigned, false, &little), integer as $unsigned as i128);
                    assert_eq!(load(Unsigned, true, &big), integer as $unsigned as i128);
                }
            }
        )+};
    }
    check! { i8, u8; i16, u16; i32, u32; i64, u64; i128, u128; }
    let ascending = [
        -f64::NAN,
        f64::NEG_INFINITY,
        f64::MIN,
        -1.0,
        -f64::MIN_POSITIVE,
        -f64::from_bits(1),
        -0.0,
        0.0,
        f64::from_bits(1),
        1.0,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];
    let doubles = ascending.map(|float| load(Float, false, &float.to_le_bytes()));
    assert!(doubles.is_sorted_by(|a, b| a < b), "{doubles:?}");
    assert!(doubles.iter().all(|n| i64::try_from(*n).is_ok()));
    let big = ascending.map(|float| load(Float, true, &float.to_be_bytes()));
    assert_eq!(doubles, big);
    let singles = [
        -f32::NAN,
        f32::NEG_INFINITY,
        -1.5,
        -0.0,
        0.0,
        2.0,
        f32::INFINITY,
        f32::NAN,
    ];
    let loaded = singles.map(|float| load(Float, false, &float.to_le_bytes()));
    assert!(loaded.is_sorted_by(|a, b| a < b), "{loaded:?}");
    assert!(loaded.iter().all(|n| i32::try_from(*n).is_ok()));
}

#[test]
fn floats_come_out_as_they_went_in() {
    for float in [-f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::NAN] {
        let number = Number {
            bytes: 8,
            is_big_endian: false,
            format: NumberFormat::Float,
        };
        let load = Instruction::Load {
            from: 0,
            at: 1,
            number,
        };
        let plan = ScanPlan {
            checks: Vec::new(),
            instructions: vec![Instruction::Value, Instruction::Constant(int(0)), load],
            filter: None,
            output: ScanOutput::Rows(vec![OutputColumn {
                register: 2,
                stored: ColumnType::Float { bytes: 8 },
            }]),
        };
        let stored = float.to_le_bytes().to_vec();
        let (batches, _) = scan(&plan, &[(Vec::new(), stored.clone())]).expect("it is sound");
        assert_eq!(batches[0].columns[0].values, stored);
    }
}

#[test]
fn results_wrap_as_their_range_says_or_are_errors() {
    let plan = |operation, left, right, range| ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Constant(int(left)),
            Instruction::Constant(int(right)),
            Instruction::Arithmetic {
                operation,
                left: 0,
                right: 1,
                range,
            },
        ],
        filter: None,
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 2,
            stored: ColumnType::Integer { bytes: 16 },
        }]),
    };
    let result = |operation, left, right, range| {
        let plan = plan(operation, left, right, range);
        scan(&plan, &[(Vec::new(), Vec::new())]).map(|(batches, _)| {
            let values = &batches[0].columns[0].values;
            i128::from_le_bytes(values[..].try_into().expect("16 bytes"))
        })
    };
    use Operation::{Add, Multiply, Subtract};
    let signed = |bytes| IntegerRange::WrapSigned { bytes };
    let unsigned = |bytes| IntegerRange::WrapUnsigned { bytes };
    assert_eq!(result(Add, 127, 1, signed(1)), Ok(-128));
    assert_eq!(result(Subtract, -128, 1, signed(1)), Ok(127));
    assert_eq!(result(Multiply, 1 << 15, 3, signed(2)), Ok(-32768));
    assert_eq!(
        result(Add, i128::from(i32::MAX), 1, signed(4)),
        Ok(i128::from(i32::MIN))
    );
    assert_eq!(
        result(Multiply, 1 << 62, 2, signed(8)),
        Ok(i128::from(i64::MIN))
    );
    assert_eq!(result(Add, i128::MAX, 1, signed(16)), Ok(i128::MIN));
    assert_eq!(result(Subtract, 0, 1, unsigned(1)), Ok(255));
    assert_eq!(
        result(Subtract, 0, 1, unsigned(8)),
        Ok(i128::from(u64::MAX))
    );
    assert_eq!(result(Multiply, i128::MAX, i128::MAX, unsigned(8)), Ok(1));
    assert_eq!(result(Multiply, i128::MIN, -1, signed(16)), Ok(i128::MIN));
    let exact = IntegerRange::Exact;
    assert_eq!(result(Add, i128::MAX - 1, 1, exact), Ok(i128::MAX));
    assert_eq!(result(Multiply, 1 << 126, -2, exact), Ok(i128::MIN));
    for (operation, left, right) in [
        (Add, i128::MAX, 1),
        (Subtract, i128::MIN, 1),
        (Multiply, i128::MIN, -1),
        (Multiply, 1 << 64, 1 << 63),
    ] {
        let error = result(operation, left, right, exact).expect_err("it is too large");
        assert_eq!(error.kind, ErrorKind::OutOfRange);
        assert!(error.to_string().contains("128 bits"), "{error}");
    }
}

#[test]
fn numbers_of_rows_that_are_not_wanted_may_be_out_of_range() {
    let huge = Instruction::Constant(int(i128::MAX));
    let double = Instruction::Arithmetic {
        operation: Operation::Add,
        left: 1,
        right: 1,
        range: IntegerRange::Exact,
    };
    let is_small = Instruction::Compare {
        comparison: Comparison::Less,
        left: 2,
        right: 1,
    };
    let plan = |filter| ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Constant(Literal::Boolean(false)),
            huge.clone(),
            double.clone(),
            is_small.clone(),
            Instruction::And(0, 3),
            Instruction::And(3, 0),
            Instruction::IsNull(4),
        ],
        filter: Some(filter),
        output: ScanOutput::Rows(vec![OutputColumn {
            register: 2,
            stored: ColumnType::Integer { bytes: 16 },
        }]),
    };
    let rows = [(Vec::new(), Vec::new())];
    assert!(scan(&plan(4), &rows).is_ok_and(|(_, output)| output.selected == 0));
    for filter in [3, 5, 6] {
        let error = scan(&plan(filter), &rows).expect_err("the number is needed");
        assert_eq!(error.kind, ErrorKind::OutOfRange);
    }
}

#[test]
fn patterns_match_characters_of_utf8_and_other_bytes() {
    use PatternPart::{AnyBytes, AnyCharacter};
    let like = |value: &[u8], parts: Vec<PatternPart>| {
        apply(&[bytes(value)], |r| Instruction::Like {
            of: r[0],
            pattern: Pattern::Parts(parts.clone()),
        }) == Some(Literal::Boolean(true))
    };
    let part = |part: &str| PatternPart::Bytes(part.as_bytes().to_vec());
    assert!(like(b"", vec![]) && !like(b"a", vec![]));
    assert!(like(b"", vec![AnyBytes]) && !like(b"", vec![AnyCharacter]));
    assert!(like(
        "a€b".as_bytes(),
        vec![part("a"), AnyCharacter, part("b")]
    ));
    assert!(!like("€".as_bytes(), vec![AnyCharacter, AnyCharacter]));
    // No character begins within another.
    assert!(!like(
        "€".as_bytes(),
        vec![AnyBytes, AnyCharacter, AnyCharacter]
    ));
    assert!(like(
        "é€".as_bytes(),
        vec![AnyBytes, AnyCharacter, AnyCharacter]
    ));
    // A character that is cut off, a surrogate, one that is too long, and one that is too large: bytes on their own.
    for (value, characters) in [
        (&b"\xe2\x82"[..], 2),
        (b"\xed\xa0\x80", 3),
        (b"\xc0\x80", 2),
        (b"\xe0\x80\x80", 3),
        (b"\xf0\x80\x80\x80", 4),
        (b"\xf4\x90\x80\x80", 4),
        (b"\xf4\x8f\xbf\xbf", 1),
        (b"\xff", 1),
        (b"\xc3\xa9\xa9", 2),
        (b"\x80a", 2),
    ] {
        for n in 1..=4 {
            assert_eq!(
                like(value, vec![AnyCharacter; n]),
                n == characters,
                "{value:?}"
            );
        }
    }
    let special = vec![
        AnyBytes,
        part("special"),
        AnyBytes,
        part("requests"),
        AnyBytes,
    ];
    assert!(like(b"no special or other requests", special.clone()));
    assert!(!like(b"requests that are special", special));
    // The last part has to end at the end, so an early match must be undone.
    assert!(like(b"ababab", vec![AnyBytes, part("ab")]));
    assert!(like(b"aab", vec![AnyBytes, AnyCharacter, part("b")]));
    assert!(!like(b"aba", vec![AnyBytes, part("b")]));
}

#[test]
fn other_patterns_match_where_they_say() {
    let like = |value: &[u8], pattern: Pattern| {
        apply(&[bytes(value)], |r| Instruction::Like {
            of: r[0],
            pattern: pattern.clone(),
        }) == Some(Literal::Boolean(true))
    };
    let of = |bytes: &[u8]| bytes.to_vec();
    assert!(like(b"abc", Pattern::Prefix(of(b"ab"))) && !like(b"abc", Pattern::Prefix(of(b"b"))));
    assert!(like(b"abc", Pattern::Suffix(of(b"bc"))) && !like(b"c", Pattern::Suffix(of(b"bc"))));
    assert!(like(b"aab", Pattern::Contains(of(b"ab"))) && like(b"", Pattern::Contains(of(b""))));
    assert!(
        !like(b"aba", Pattern::Contains(of(b"bb"))) && !like(b"a", Pattern::Contains(of(b"aa")))
    );
}
