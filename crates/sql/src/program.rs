//! Compiles DataFusion's expressions to the program of a scan.
//!
//! A program computes the same bits as DataFusion. An expression that programs lack is left to DataFusion, with a
//! reason that `EXPLAIN` shows.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal as Constant, NotExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use rockmill_core::scan::{
    Comparison, Instruction, IntegerRange, Literal, MAX_INSTRUCTIONS, Operation, OutputColumn,
    Pattern, PatternPart, Register, ScanOutput, ScanPlan, ValueKind,
};
use rockmill_layout::{Layout, column_type, is_binary, is_bytes, is_text, value_kind};

use crate::functions::{is_known, number_of};
use crate::guard::{is_condition, may_fail};
use crate::stored::literal;

/// Reason why an expression is left to DataFusion.
pub type Reason = String;

/// Maximum number of instructions up to which filters are added. The rest is for columns and checks.
const MAX_FILTER_INSTRUCTIONS: usize = MAX_INSTRUCTIONS / 2;

/// A program under construction.
#[derive(Debug, Clone)]
pub struct Program {
    /// Expressions name columns of the table by their positions.
    layout: Arc<Layout>,
    instructions: Vec<Instruction>,
    /// The register of each instruction.
    places: HashMap<Instruction, Register>,
    /// All conditions of the filter.
    filter: Option<Register>,
    /// Positions in the table of all columns that expressions have named.
    used: BTreeSet<usize>,
}

impl Program {
    /// A program without instructions.
    pub fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            instructions: Vec::new(),
            places: HashMap::new(),
            filter: None,
            used: BTreeSet::new(),
        }
    }

    /// The same, but the program begins with that of a plan.
    #[must_use]
    pub fn beginning_with(self, plan: &ScanPlan) -> Self {
        let places = plan.instructions.iter().cloned().zip(0..).collect();
        Self {
            instructions: plan.instructions.clone(),
            filter: plan.filter,
            places,
            ..self
        }
    }

    /// The plan with which the program began, with the additions to the filter.
    pub fn into_plan(self, plan: &ScanPlan) -> ScanPlan {
        ScanPlan {
            instructions: self.instructions,
            filter: self.filter,
            checks: plan.checks.clone(),
            output: plan.output.clone(),
        }
    }

    /// Adds an instruction, unless its result is there already.
    pub fn push(&mut self, instruction: Instruction) -> Register {
        if let Some(at) = self.places.get(&instruction) {
            return *at;
        }
        // A program that is too long is refused at the end.
        let at = self.instructions.len() as Register;
        self.places.insert(instruction.clone(), at);
        self.instructions.push(instruction);
        at
    }

    /// The plan of a scan with this filter and output, which also checks that rows fit the layout.
    ///
    /// # Errors
    /// If the program is too long.
    pub fn plan(mut self, output: ScanOutput) -> Result<ScanPlan, Reason> {
        let (layout, used) = (Arc::clone(&self.layout), std::mem::take(&mut self.used));
        let checks = layout.checks(&used, &mut |instruction| self.push(instruction));
        self.has_room(MAX_INSTRUCTIONS)?;
        Ok(ScanPlan {
            checks,
            instructions: self.instructions,
            filter: self.filter,
            output,
        })
    }

    fn has_room(&self, most: usize) -> Result<(), Reason> {
        match self.instructions.len() {
            len if len > most => Err(format!(
                "the program of the scan would have {len} steps, and at most {most} are possible"
            )),
            _ => Ok(()),
        }
    }

    /// Adds an expression completely, or adds nothing.
    ///
    /// # Errors
    /// The reason why the expression is left to DataFusion.
    pub fn add(&mut self, expression: &Arc<dyn PhysicalExpr>) -> Result<Register, Reason> {
        self.add_if(expression, |program| program.has_room(MAX_INSTRUCTIONS))
    }

    /// Adds an expression unless `check` finds a reason against the program with it.
    fn add_if(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
        check: impl FnOnce(&Self) -> Result<(), Reason>,
    ) -> Result<Register, Reason> {
        let (before, used) = (self.instructions.len(), self.used.clone());
        let added = self.expression(expression);
        let added = added.and_then(|register| check(self).map(|()| register));
        if added.is_err() {
            for instruction in self.instructions.drain(before..) {
                self.places.remove(&instruction);
            }
            self.used = used;
        }
        added
    }

    /// Adds a condition to the filter. The scan evaluates it before the filters that are left to DataFusion. So a
    /// condition that may fail is refused: one of these filters may protect it.
    ///
    /// # Errors
    /// The errors of [`Program::add`].
    pub fn filter(&mut self, condition: &Arc<dyn PhysicalExpr>) -> Result<(), Reason> {
        let may_fail = may_fail(condition, self.layout.schema());
        let condition = self.add_if(condition, |program| match may_fail {
            true => Err("it may fail, and scans filter first".to_owned()),
            false => program.has_room(MAX_FILTER_INSTRUCTIONS),
        })?;
        self.filter = Some(match self.filter {
            Some(before) => self.push(Instruction::And(before, condition)),
            None => condition,
        });
        Ok(())
    }

    /// Adds an expression whose values are in the output.
    ///
    /// # Errors
    /// The errors of [`Program::add`].
    pub fn output(&mut self, expression: &Arc<dyn PhysicalExpr>) -> Result<OutputColumn, Reason> {
        let data_type = self.type_of(expression)?;
        let stored = column_type(&data_type).ok_or_else(|| unsupported_type(&data_type))?;
        let register = self.add(expression)?;
        Ok(OutputColumn { register, stored })
    }

    /// Adds an expression whose values form groups. Floats are refused: DataFusion treats their two zeros as equal.
    ///
    /// # Errors
    /// The errors of [`Program::add`].
    pub fn comparable(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
    ) -> Result<OutputColumn, Reason> {
        let data_type = self.type_of(expression)?;
        match is_float(&data_type) {
            true => Err(unsupported_type(&data_type)),
            false => self.output(expression),
        }
    }

    fn type_of(&self, expression: &Arc<dyn PhysicalExpr>) -> Result<DataType, Reason> {
        let data_type = expression.data_type(self.layout.schema());
        data_type.map_err(|e| e.to_string())
    }

    fn constant(&mut self, literal: Literal) -> Register {
        self.push(Instruction::Constant(literal))
    }

    fn expression(&mut self, expression: &Arc<dyn PhysicalExpr>) -> Result<Register, Reason> {
        let expr = expression;
        if let Some(column) = expr.downcast_ref::<Column>() {
            let position = column.index();
            if position >= self.layout.schema().fields().len() {
                return Err(format!("no column {}", column.name()));
            }
            if let Some(why) = self.layout.unsupported(position) {
                return Err(why);
            }
            self.used.insert(position);
            let layout = Arc::clone(&self.layout);
            return Ok(layout.column(position, &mut |instruction| self.push(instruction)));
        }
        if let Some(constant) = expr.downcast_ref::<Constant>() {
            let literal = literal(constant.value())
                .ok_or_else(|| unsupported_type(&constant.value().data_type()))?;
            return Ok(self.constant(literal));
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(expression, binary);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            let of = self.boolean(not.arg())?;
            return Ok(self.push(Instruction::Not(of)));
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            let of = self.expression(is_null.arg())?;
            return Ok(self.push(Instruction::IsNull(of)));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            let of = self.expression(is_not_null.arg())?;
            let is_null = self.push(Instruction::IsNull(of));
            return Ok(self.push(Instruction::Not(is_null)));
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return self.one_of(list);
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            return self.like(like);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            return self.cast(cast);
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            return self.function(function);
        }
        Err(format!("scans do not compute {expression}"))
    }

    fn boolean(&mut self, expression: &Arc<dyn PhysicalExpr>) -> Result<Register, Reason> {
        let binary = expression.downcast_ref::<BinaryExpr>();
        if binary.is_some_and(|binary| is_condition(*binary.op())) {
            return self.expression(expression);
        }
        match self.type_of(expression)? {
            DataType::Boolean => self.expression(expression),
            other => Err(unsupported_type(&other)),
        }
    }

    fn binary(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
        binary: &BinaryExpr,
    ) -> Result<Register, Reason> {
        let (left, right) = (binary.left(), binary.right());
        let comparison = match binary.op() {
            // DataFusion may skip the right side if the left one decides.
            Operator::And | Operator::Or if may_fail(right, self.layout.schema()) => {
                return Err("scans do not skip an expression that may fail".to_owned());
            }
            Operator::And => {
                let (left, right) = (self.boolean(left)?, self.boolean(right)?);
                return Ok(self.push(Instruction::And(left, right)));
            }
            Operator::Or => {
                let (left, right) = (self.boolean(left)?, self.boolean(right)?);
                return Ok(self.push(Instruction::Or(left, right)));
            }
            Operator::Plus => return self.arithmetic(expression, binary, Operation::Add),
            Operator::Minus => return self.arithmetic(expression, binary, Operation::Subtract),
            Operator::Multiply => return self.arithmetic(expression, binary, Operation::Multiply),
            Operator::Eq => Comparison::Equal,
            Operator::NotEq => Comparison::NotEqual,
            Operator::Lt => Comparison::Less,
            Operator::LtEq => Comparison::LessOrEqual,
            Operator::Gt => Comparison::Greater,
            Operator::GtEq => Comparison::GreaterOrEqual,
            other => return Err(format!("scans do not compute {other}")),
        };
        let (left_type, right_type) = (self.type_of(left)?, self.type_of(right)?);
        let are_bytes = is_bytes(&left_type) && is_bytes(&right_type);
        if !are_bytes && left_type != right_type {
            return Err(format!("{left_type} is compared with {right_type}"));
        }
        value_kind(&left_type).ok_or_else(|| unsupported_type(&left_type))?;
        if is_float(&left_type) {
            return self.compare_float(left, comparison, right);
        }
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        Ok(self.push(Instruction::Compare {
            comparison,
            left,
            right,
        }))
    }

    /// Compares a float with a constant. DataFusion treats the two zeros as equal, and compares in total order
    /// otherwise.
    fn compare_float(
        &mut self,
        left: &Arc<dyn PhysicalExpr>,
        comparison: Comparison,
        right: &Arc<dyn PhysicalExpr>,
    ) -> Result<Register, Reason> {
        /// The two zeros, as integers of the same order.
        const NEGATIVE_ZERO: i128 = -1;
        const ZERO: i128 = 0;
        let constant = right.downcast_ref::<Constant>();
        let Some(constant) = constant.and_then(|constant| literal(constant.value())) else {
            return Err("scans compare floats with constants alone".to_owned());
        };
        let of = self.expression(left)?;
        let is_zero = [NEGATIVE_ZERO, ZERO]
            .map(Literal::Integer)
            .contains(&constant);
        let constant = match (is_zero, comparison) {
            (false, _) => constant,
            (true, Comparison::Less | Comparison::GreaterOrEqual) => {
                Literal::Integer(NEGATIVE_ZERO)
            }
            (true, Comparison::LessOrEqual | Comparison::Greater) => Literal::Integer(ZERO),
            (true, Comparison::Equal | Comparison::NotEqual) => {
                let values = [NEGATIVE_ZERO, ZERO].map(Literal::Integer).to_vec();
                let equal = self.push(Instruction::OneOf { of, values });
                return Ok(match comparison {
                    Comparison::NotEqual => self.push(Instruction::Not(equal)),
                    _ => equal,
                });
            }
        };
        let right = self.constant(constant);
        Ok(self.push(Instruction::Compare {
            comparison,
            left: of,
            right,
        }))
    }

    fn arithmetic(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
        binary: &BinaryExpr,
        operation: Operation,
    ) -> Result<Register, Reason> {
        let types = [self.type_of(binary.left())?, self.type_of(binary.right())?];
        let result = self.type_of(expression)?;
        let range = match (&types, &result) {
            ([DataType::Decimal128(..), DataType::Decimal128(..)], DataType::Decimal128(..)) => {
                IntegerRange::Exact
            }
            ([left, right], result) if left == right && left == result => {
                wrapping(result).ok_or_else(|| unsupported_type(result))?
            }
            _ => return Err(unsupported_type(&result)),
        };
        let mut left = self.expression(binary.left())?;
        let mut right = self.expression(binary.right())?;
        if let (
            [DataType::Decimal128(_, a), DataType::Decimal128(_, b)],
            DataType::Decimal128(_, scale),
        ) = (&types, &result)
            && operation != Operation::Multiply
        {
            left = self.scaled(left, i32::from(*scale) - i32::from(*a))?;
            right = self.scaled(right, i32::from(*scale) - i32::from(*b))?;
        }
        if let (
            [DataType::Decimal128(_, a), DataType::Decimal128(_, b)],
            DataType::Decimal128(_, scale),
        ) = (&types, &result)
            && operation == Operation::Multiply
            && i32::from(*a) + i32::from(*b) != i32::from(*scale)
        {
            return Err("a product of decimals is rounded".to_owned());
        }
        Ok(self.push(Instruction::Arithmetic {
            operation,
            left,
            right,
            range,
        }))
    }

    /// Multiplies by a power of ten.
    fn scaled(&mut self, register: Register, digits: i32) -> Result<Register, Reason> {
        if digits == 0 {
            return Ok(register);
        }
        let factor = u32::try_from(digits)
            .ok()
            .and_then(|d| 10i128.checked_pow(d));
        let factor = factor.ok_or_else(|| "a decimal is rounded".to_owned())?;
        let right = self.constant(Literal::Integer(factor));
        Ok(self.push(Instruction::Arithmetic {
            operation: Operation::Multiply,
            left: register,
            right,
            range: IntegerRange::Exact,
        }))
    }

    fn one_of(&mut self, list: &InListExpr) -> Result<Register, Reason> {
        let data_type = self.type_of(list.expr())?;
        if is_float(&data_type) {
            return Err(unsupported_type(&data_type));
        }
        let mut values = Vec::with_capacity(list.len());
        let mut has_null = false;
        for item in list.list() {
            let item_type = self.type_of(item)?;
            let constant = item.downcast_ref::<Constant>();
            let value = constant.and_then(|constant| literal(constant.value()));
            match value {
                Some(Literal::Null(_)) => has_null = true,
                Some(value)
                    if item_type == data_type || (is_bytes(&item_type) && is_bytes(&data_type)) =>
                {
                    values.push(value);
                }
                _ => return Err(format!("scans do not look for {item}")),
            }
        }
        values.sort_unstable();
        values.dedup();
        let of = self.expression(list.expr())?;
        let mut found = self.push(Instruction::OneOf { of, values });
        if has_null {
            let unknown = self.constant(Literal::Null(ValueKind::Boolean));
            found = self.push(Instruction::Or(found, unknown));
        }
        Ok(match list.negated() {
            true => self.push(Instruction::Not(found)),
            false => found,
        })
    }

    fn like(&mut self, like: &LikeExpr) -> Result<Register, Reason> {
        let data_type = self.type_of(like.expr())?;
        let constant = like.pattern().downcast_ref::<Constant>();
        let pattern = constant.and_then(|constant| constant.value().try_as_str().flatten());
        let Some(pattern) = pattern.filter(|_| is_text(&data_type) && !like.case_insensitive())
        else {
            return Err(format!("scans do not compute {like}"));
        };
        let pattern = parse_like(pattern);
        let of = self.expression(like.expr())?;
        let matches = self.push(Instruction::Like { of, pattern });
        Ok(match like.negated() {
            true => self.push(Instruction::Not(matches)),
            false => matches,
        })
    }

    /// A conversion that can neither fail nor round.
    fn cast(&mut self, cast: &CastExpr) -> Result<Register, Reason> {
        let (from, to) = (self.type_of(cast.expr())?, cast.cast_type().clone());
        let of = self.expression(cast.expr())?;
        let refused = || format!("scans do not convert {from} to {to}");
        if from == to || (is_text(&from) && is_text(&to)) || (is_binary(&from) && is_binary(&to)) {
            return Ok(of);
        }
        match (&from, &to) {
            (DataType::Decimal128(p, s), DataType::Decimal128(to_p, to_s))
                if to_s >= s
                    && i32::from(*to_p) - i32::from(*to_s) >= i32::from(*p) - i32::from(*s) =>
            {
                self.scaled(of, i32::from(*to_s) - i32::from(*s))
            }
            (_, DataType::Decimal128(precision, scale)) => {
                let digits = integer_digits(&from).ok_or_else(refused)?;
                if *scale < 0 || i32::from(*precision) - i32::from(*scale) < digits {
                    return Err(refused());
                }
                self.scaled(of, i32::from(*scale))
            }
            _ if widens(&from, &to) => Ok(of),
            _ => Err(refused()),
        }
    }

    fn function(&mut self, function: &ScalarFunctionExpr) -> Result<Register, Reason> {
        let refused = || format!("scans do not compute {}", function.name());
        if !is_known(function.fun()) {
            return Err(refused());
        }
        let bytes = |program: &Self, argument: &Arc<dyn PhysicalExpr>| {
            let data_type = program.type_of(argument)?;
            match is_bytes(&data_type) {
                true => Ok(()),
                false => Err(refused()),
            }
        };
        match (function.fun().name(), function.args()) {
            ("octet_length", [of]) => {
                bytes(self, of)?;
                let of = self.expression(of)?;
                Ok(self.push(Instruction::Length(of)))
            }
            (name @ ("starts_with" | "ends_with" | "contains"), [of, part]) => {
                bytes(self, of)?;
                let constant = part.downcast_ref::<Constant>();
                let Some(Literal::Bytes(part)) = constant.and_then(|c| literal(c.value())) else {
                    return Err(refused());
                };
                let pattern = match name {
                    "starts_with" => Pattern::Prefix(part),
                    "ends_with" => Pattern::Suffix(part),
                    _ => Pattern::Contains(part),
                };
                let of = self.expression(of)?;
                Ok(self.push(Instruction::Like { of, pattern }))
            }
            (name, [from, at]) => {
                let number = number_of(name).ok_or_else(refused)?;
                bytes(self, from)?;
                if self.type_of(at)? != DataType::Int64 {
                    return Err(refused());
                }
                let (from, at) = (self.expression(from)?, self.expression(at)?);
                Ok(self.push(Instruction::Load { from, at, number }))
            }
            _ => Err(refused()),
        }
    }
}

fn unsupported_type(data_type: &DataType) -> Reason {
    format!("scans do not compute with {data_type}")
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// How DataFusion's arithmetic of a type treats results that are out of range; `None` if it is not of integers.
fn wrapping(data_type: &DataType) -> Option<IntegerRange> {
    let signed = |bytes| Some(IntegerRange::WrapSigned { bytes });
    let unsigned = |bytes| Some(IntegerRange::WrapUnsigned { bytes });
    match data_type {
        DataType::Int8 => signed(1),
        DataType::Int16 => signed(2),
        DataType::Int32 => signed(4),
        DataType::Int64 => signed(8),
        DataType::UInt8 => unsigned(1),
        DataType::UInt16 => unsigned(2),
        DataType::UInt32 => unsigned(4),
        DataType::UInt64 => unsigned(8),
        _ => None,
    }
}

/// Bits of an integer, and whether it has a sign.
fn integer_bits(data_type: &DataType) -> Option<(u8, bool)> {
    match wrapping(data_type)? {
        IntegerRange::WrapSigned { bytes } => Some((bytes * 8 - 1, true)),
        IntegerRange::WrapUnsigned { bytes } => Some((bytes * 8, false)),
        IntegerRange::Exact => None,
    }
}

/// Whether each integer of one type is one of the other type.
pub fn widens(from: &DataType, to: &DataType) -> bool {
    let (Some((bits, signed)), Some((to_bits, to_signed))) = (integer_bits(from), integer_bits(to))
    else {
        return false;
    };
    bits <= to_bits && (to_signed || !signed)
}

/// Maximum decimal digits of an integer.
pub fn integer_digits(data_type: &DataType) -> Option<i32> {
    let (bits, _) = integer_bits(data_type)?;
    let largest = (1u128 << bits) - 1;
    Some(largest.ilog10() as i32 + 1)
}

/// A pattern of SQL's LIKE, in which `\` escapes.
pub fn parse_like(text: &str) -> Pattern {
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    let mut characters = text.chars();
    let mut buffer = [0; 4];
    while let Some(character) = characters.next() {
        let part = match character {
            '%' => PatternPart::AnyBytes,
            '_' => PatternPart::AnyCharacter,
            '\\' => {
                // A last backslash stands for itself.
                let escaped = characters.next().unwrap_or('\\');
                bytes.extend_from_slice(escaped.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
            other => {
                bytes.extend_from_slice(other.encode_utf8(&mut buffer).as_bytes());
                continue;
            }
        };
        if !bytes.is_empty() {
            parts.push(PatternPart::Bytes(std::mem::take(&mut bytes)));
        }
        parts.push(part);
    }
    if !bytes.is_empty() {
        parts.push(PatternPart::Bytes(bytes));
    }
    match &mut parts[..] {
        [PatternPart::Bytes(bytes), PatternPart::AnyBytes] => {
            Pattern::Prefix(std::mem::take(bytes))
        }
        [PatternPart::AnyBytes, PatternPart::Bytes(bytes)] => {
            Pattern::Suffix(std::mem::take(bytes))
        }
        [
            PatternPart::AnyBytes,
            PatternPart::Bytes(bytes),
            PatternPart::AnyBytes,
        ] => Pattern::Contains(std::mem::take(bytes)),
        _ => Pattern::Parts(parts),
    }
}
