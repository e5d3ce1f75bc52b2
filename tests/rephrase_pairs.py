r"""Hand-made pairs in the manner of GSM8K and MATH for `test_rephrase.py`.

GOOD: (original, rephrasing, gold): must be accepted. BAD: the same and the reason it must be
turned down for. UNSEEN: wrong too, and accepted: what rules without a model cannot see.
"""

CLIPS = (
    "Nora sold 48 clips in April and half as many clips in May. "
    "How many clips did Nora sell altogether in April and May?"
)
EGGS = (
    "A farmer collects a dozen eggs each day. He eats 3 of them and sells the rest "
    "for $2 each. How many dollars does he make in a week?"
)
TRAIN = (
    "A train travels 60 miles per hour for 2.5 hours and then 45 miles per hour for 2 hours. "
    "How many miles does it travel in total?"
)
LINE = r"The line $y = 3x - 7$ passes through the point $(a, 5)$. What is the value of $a$?"
FRAC = (
    r"If $a$ is three times $b$ and $b$ is twice $c$, what is $\frac{a}{c}$? "
    r"Express your answer as a common fraction."
)
DIGITS = "How many positive three-digit integers have digits that are all odd and distinct?"
CIRCLE = (
    r"A circle has a radius of $6$ cm. What is its area, in square centimeters? "
    r"Express your answer in terms of $\pi$."
)
LEAST = "What is the smallest positive integer that is divisible by both 12 and 18?"
ROUND = (
    "The average of 5 test scores is 83. The first 4 scores are 80, 91, 78 and 85. What is the "
    "fifth score? Round your answer to the nearest tenth."
)
SETTLE = "Tom has at least 15 marbles, and no more than 20. How many numbers are possible?"
ASY = (
    "In the figure, what is the area of the square?\n[asy]\ndraw((0,0)--(4,0)--(4,4)--(0,4)--"
    "cycle);\n[/asy]\nEach side has length 4."
)
BASE = r"Compute $32_5 + 14_5$. Express your answer in base $5$."
SHIRTS = "A shirt costs $20. It is on sale for 15% off. How much does Ben pay for 3 shirts?"
ROOT = r"Simplify $\sqrt{50} + \sqrt{18}$. Write your answer in simplest radical form."
INEQ = r"Find all real $x$ such that $x^2 - 5x + 6 \le 0$. Give your answer in interval notation."
DIE = "A fair die is rolled twice. What is the probability that the sum of the rolls is 7?"
POOL = "A pool holds 1,200 gallons. A pump adds 40 gallons per minute. How long does it take?"
AGE = "Mia is 3 times as old as Leo. In 5 years the sum of their ages will be 42. How old is Leo?"
TAPE = "Ana cuts a tape of 2 1/2 feet into pieces of 6 inches. How many pieces does she get?"
CHOOSE = "In how many ways can a committee of 3 people be chosen from 10 people?"
FUNC = r"Let $f(x) = 2x^2 - 3$. What is the value of $f(-2)$?"
SHARE = "Two-thirds of the 24 children in a class walk to school. How many children do not walk?"
MONEY = "Kim earns $12 an hour. Yesterday she worked 50 minutes. How much did she earn?"
EQUAL = "Ana has 5 red beads, 3 blue beads and 3 green beads. How many beads does she have?"

GOOD = [
    (CLIPS, "In April Nora sold 48 clips. In May she sold half that number. What is the total "
     "number of clips sold over both months?", "72"),
    (CLIPS, "How many clips in all did Nora sell in April and May, if she sold 48 of them in April "
     "and 1/2 as many in May?", "72"),
    (CLIPS, "- Clips sold by Nora in April: 48\n- Clips sold in May: one half of April's number\n"
     "Find the number of clips sold in April and May together.", "72"),
    (EGGS, "Each day a farmer gathers 12 eggs, of which he eats three. The others are sold at 2 "
     "dollars apiece. How many dollars does he earn in one week?", "126"),
    (EGGS, "How many dollars does a farmer make in a week when he sells his eggs for $2 each? "
     "Every day he collects a dozen of them and eats 3.", "126"),
    (EGGS, "Given:\n1. Eggs collected each day: a dozen\n2. Eggs eaten each day: 3\n3. Price of "
     "each egg that is left: $2\nHow many dollars does the farmer make in one week?", "126"),
    (TRAIN, "For 2.5 hours a train goes at 60 miles per hour; for the next two hours it goes at 45 "
     "miles per hour. Find the total distance in miles.", "240"),
    (TRAIN, "What total distance, in miles, does a train cover if it runs at 60 mph for two and a "
     "half hours and afterwards at 45 mph for 2 hours?", "240"),
    (LINE, r"The point $(a, 5)$ lies on the line $y = 3x - 7$. Find $a$.", "4"),
    (LINE, r"Find the value of $a$ if a line with equation $y=3x-7$ goes through $(a,5)$.", "4"),
    (FRAC, r"Suppose that $a$ is 3 times $b$, and that $b$ is double $c$. Find the value of "
     r"$\frac{a}{c}$ as a common fraction.", "6"),
    (FRAC, r"What is $\dfrac{a}{c}$, as a common fraction, when $b$ is twice $c$ and $a$ is "
     r"triple $b$?", "6"),
    (DIGITS, "Find the number of positive 3-digit integers all of whose digits are odd and "
     "different from one another.", "60"),
    (DIGITS, "Consider positive integers with three digits. How many of them have only odd digits, "
     "all distinct?", "60"),
    (CIRCLE, r"Find the area, in square centimeters, of a circle whose radius is $6$ cm. Give the "
     r"answer in terms of $\pi$.", r"36\pi"),
    (CIRCLE, r"In terms of $\pi$, how many square centimeters are there in the area of a circle of "
     r"radius $6\text{ cm}$?", r"36\pi"),
    (LEAST, "Find the least positive integer which both 12 and 18 divide.", "36"),
    (LEAST, "Of all positive integers divisible by 12 and by 18, which is the smallest?", "36"),
    (ROUND, "Five test scores have an average of 83. Four of them, the first 4, are 80, 91, 78, "
     "and 85. Find the 5th score, to the nearest tenth.", "81.0"),
    (ROUND, "The first 4 of 5 test scores are 80, 91, 78 and 85, and the mean of the five is 83. "
     "What is the fifth score, rounded to one decimal place?", "81.0"),
    (SETTLE, "The number of Tom's marbles is not less than 15 and at most 20. How many different "
     "numbers can it be?", "6"),
    (SETTLE, r"Let $m$ be the number of Tom's marbles. Given $m \ge 15$ and $m \le 20$, how many "
     "different values can it have?", "6"),
    (ASY, "Each side of the square has length 4. Find the area of the square in the figure.\n[asy]"
     "\ndraw((0,0)--(4,0)--(4,4)--(0,4)--cycle);\n[/asy]", "16"),
    (BASE, r"What is the sum $32_5 + 14_5$, written in base $5$?", "101"),
    (BASE, r"In base $5$, find the value of $32_5+14_5$.", "101"),
    (SHIRTS, "Ben buys 3 shirts in a sale with 15 percent off. The price of one shirt was $20. How "
     "much does he pay?", "51"),
    (SHIRTS, "How much must Ben pay for three shirts, if each costs 20 dollars before a discount "
     "of 15%?", "51"),
    (ROOT, r"Write the sum $\sqrt{50} + \sqrt{18}$ in simplest radical form.", r"8\sqrt{2}"),
    (ROOT, r"In simplest radical form, what is $\sqrt{50}+\sqrt{18}$ equal to?", r"8\sqrt{2}"),
    (INEQ, r"For which real numbers $x$ is $x^2 - 5x + 6 \leq 0$? Use interval notation for the "
     r"answer.", "[2,3]"),
    (INEQ, r"Solve the inequality $x^{2}-5x+6\le0$ over the real numbers, with the answer in "
     r"interval notation.", "[2,3]"),
    (DIE, "Find the probability of getting a sum of 7 when a fair die is thrown two times.", "1/6"),
    (DIE, "What is the chance that two rolls of a fair die add up to seven?", "1/6"),
    (POOL, "At 40 gallons per minute, how long does a pump need to fill a pool of 1200 gallons?",
     "30"),
    (POOL, "Given: a pool of $1{,}200$ gallons, and a pump that delivers 40 gallons each minute. "
     "Find the time needed to fill the pool.", "30"),
    (AGE, "The ages of Mia and Leo will add up to 42 in five years. Now Mia is three times as old "
     "as he is. What is Leo's age?", "8"),
    (AGE, "How old is Leo, if Mia's age is triple his, and if 5 years from now the sum of the two "
     "ages is going to be 42?", "8"),
    (TAPE, "How many pieces of 6 inches can Ana cut from a tape that is 2.5 feet long?", "5"),
    (TAPE, "A tape is two and a half feet long. Ana cuts it into pieces, each of six inches. Find "
     "the number of pieces.", "5"),
    (CHOOSE, "From 10 people, a committee of 3 is to be selected. Find the number of ways.", "120"),
    (CHOOSE, "How many different committees of three people can be formed from ten people?", "120"),
    (FUNC, r"Find $f(-2)$ if the function $f$ is given by $f(x)=2x^2-3$.", "5"),
    (FUNC, r"Evaluate $f(-2)$, where $f(x) = 2x^{2} - 3$.", "5"),
    (SHARE, "A class has 24 children, and 2/3 of them walk to school. How many don't?", "8"),
    (SHARE, r"Of $24$ children in a class, $\frac{2}{3}$ walk to school. How many do not?", "8"),
    (MONEY, "How much did Kim earn yesterday, working for 50 minutes at $12 per hour?", "10"),
    (MONEY, "Kim's pay is 12 dollars for each hour. Find what she earned yesterday, having worked "
     "fifty minutes.", "10"),
    (EQUAL, "Find the total number of Ana's beads: 3 are green, 3 are blue and 5 are red.", "11"),
    ("What is 7 + 5?", "Given: x = 7, y = 5. Find x + y.", "12"),
    ("What is 12 * 3?", "Multiply 3 by twelve.", "36"),
    ("What is 20 - 8 + 3?", "Add three to the difference of 20 and 8.", "15"),
    ("A box of 3 dozen pens costs $9. What does one pen cost, in cents?",
     "If three dozen pens in a box cost $9, what is the price, in cents, of a single pen?", "25"),
    (r"Find the remainder when $7^{20}$ is divided by $5$.",
     r"When $7^{20}$ is divided by $5$, what is the remainder?", "1"),
    (r"What is the greatest common divisor of $84$ and $126$?",
     r"Compute the GCD of the numbers $84$ and $126$.", "42"),
    (r"The first term of a sequence is $2$ and each term is $3$ more than the one before. What is "
     r"the $10$th term?",
     r"Each term of a sequence is $3$ more than the one before it. If it starts with $2$, find the "
     r"tenth term.", "29"),
]  # fmt: skip

BAD = [
    (CLIPS, CLIPS.replace("48", "84"), "72", "numbers"),
    (CLIPS, CLIPS.replace("half", "twice"), "72", "numbers"),
    (CLIPS, "Nora sold 48 clips in April and fewer clips in May. How many clips did Nora sell in "
     "April and May together?", "72", "numbers"),
    (CLIPS, CLIPS + " So 48 and 24 are to be added.", "72", "numbers"),
    (CLIPS, "In April Nora sold 48 clips and in May half that. Why is the total 72 clips?", "72",
     "answer leaked"),
    (CLIPS, "In April Nora sold 48 clips and in May half that many. It wants the total.", "72",
     "question"),
    (EGGS, EGGS.replace("a dozen", "ten"), "126", "numbers"),
    (SHIRTS, SHIRTS.replace("$20", "$12"), "51", "numbers"),
    (EGGS, "A farmer gathers 12 eggs each day, eats 3 and sells the others for $2 each. How many "
     "dollars does he make in a month?", "126", "units"),
    (EGGS, "A farmer gathers 12 eggs each day, eats 3 and sells the others at 2 cents each. How "
     "many dollars does he make in a week?", "126", "units"),
    (TRAIN, TRAIN.replace("2.5", "25"), "240", "numbers"),
    (TRAIN, TRAIN.replace("miles", "kilometers"), "240", "units"),
    (TRAIN, TRAIN.replace("per hour", "per minute", 1).replace("How many", "What number of"), "240",
     "units"),
    (LINE, LINE.replace("3x - 7", "3x + 7"), "4", "formula"),
    (LINE, LINE.replace("(a, 5)", "(5, a)"), "4", "formula"),
    (LINE, LINE.replace("- 7", "- 17"), "4", "numbers"),
    (FRAC, FRAC.replace(r" Express your answer as a common fraction.", ""), "6", "answer form"),
    (FRAC, FRAC.replace(r"\frac{a}{c}", r"\frac{c}{a}"), "1/6", "formula"),
    (FRAC, FRAC.replace(r"\frac", "\f" + "rac"), "6", "characters"),
    (FRAC, FRAC.replace(r"\frac{a}{c}", r"\frac{a}{c"), "6", "LaTeX"),
    (FRAC, FRAC.replace(r"\frac{a}{c}", "ac"), "6", "LaTeX"),
    (FRAC, FRAC.replace("three times", "three more than"), "6", "meaning"),
    (DIGITS, DIGITS.replace("odd", "even"), "60", "meaning"),
    (DIGITS, DIGITS.replace(" and distinct", ""), "60", "meaning"),
    (DIGITS, DIGITS.replace("three", "two"), "60", "numbers"),
    (DIGITS, DIGITS.replace("positive three-digit int", "three-digit int"), "60", "meaning"),
    (CIRCLE, CIRCLE.replace("radius", "diameter"), r"36\pi", "meaning"),
    (CIRCLE, CIRCLE.replace("area, in square", "circumference, in"), r"36\pi", "meaning"),
    (CIRCLE, CIRCLE.replace(r" Express your answer in terms of $\pi$.", ""), r"36\pi", "LaTeX"),
    (CIRCLE, CIRCLE.replace(" cm. What", ". What").replace(", in square centimeters", ""), r"36\pi",
     "units"),
    (LEAST, LEAST.replace("smallest", "largest"), "36", "meaning"),
    (LEAST, LEAST.replace("positive ", ""), "36", "meaning"),
    (ROUND, ROUND.replace(" Round your answer to the nearest tenth.", ""), "81.0", "answer form"),
    (ROUND, ROUND.replace("nearest tenth", "nearest hundredth"), "81.0",
     "answer form"),
    (ROUND, ROUND.replace("average", "median"), "81.0", "meaning"),
    (SETTLE, SETTLE.replace("at least", "at most"), "6", "meaning"),
    (SETTLE, SETTLE.replace("no more than", "less than"), "6", "meaning"),
    (SETTLE, SETTLE.replace("at least 15", "15"), "6", "meaning"),
    (ASY, ASY.replace("(4,0)", "(5,0)"), "16", "drawing"),
    (ASY, "In the figure each side of the square has length 4. What is the area of this square, "
     "please?", "16", "drawing"),
    (BASE, r"Compute $32_5 + 14_5$. Express your answer in base ten.", "101", "numbers"),
    (BASE, BASE.replace(" Express your answer in base $5$.", " What do you get?"), "101",
     "numbers"),
    (SHIRTS, SHIRTS.replace("15% off", "$15 off"), "51", "meaning"),
    (SHIRTS, SHIRTS.replace("15%", "15"), "51", "meaning"),
    (SHIRTS, SHIRTS.replace("3 shirts", "a few shirts"), "51", "numbers"),
    (ROOT, ROOT.replace("+", "-"), r"8\sqrt{2}", "formula"),
    (ROOT, ROOT.replace(r"\sqrt{18}", "18"), r"8\sqrt{2}", "formula"),
    (ROOT, ROOT.replace(" Write your answer in simplest radical form.", " What do you get?"),
     r"8\sqrt{2}", "answer form"),
    (INEQ, INEQ.replace(r"\le", r"\ge"), "[2,3]", "LaTeX"),
    (INEQ, INEQ.replace(" Give your answer in interval notation.", ""), "[2,3]", "answer form"),
    (INEQ, INEQ.replace("real $x$", "integers $x$"), "[2,3]", "meaning"),
    (DIE, DIE.replace("sum", "difference"), "1/6", "meaning"),
    (DIE, DIE.replace("twice", "once"), "1/6", "numbers"),
    (POOL, POOL.replace("1,200", "12,00"), "30", "numbers"),
    (POOL, POOL.replace("gallons", "liters"), "30", "units"),
    (AGE, AGE.replace("In 5 years", "5 years ago").replace("will be", "was"), "8",
     "meaning"),
    (TAPE, TAPE.replace("2 1/2", "2"), "5", "numbers"),
    (TAPE, TAPE.replace(" inches", ""), "5", "units"),
    (FUNC, FUNC.replace("f(-2)", "f(2)"), "5", "numbers"),
    (FUNC, FUNC.replace("2x^2", "2x^3"), "5", "numbers"),
    (SHARE, SHARE.replace("do not walk", "walk"), "8", "meaning"),
    (SHARE, SHARE.replace("Two-thirds", "One-third"), "8", "numbers"),
    (MONEY, MONEY.replace("50 minutes", "50 hours"), "10", "units"),
    (MONEY, "Kim earns $12 an hour. Yesterday she worked 50 minutes, which is 5/6 of an hour. How "
     "much did she earn?", "10", "numbers"),
    (EQUAL, "Ana has 5 red beads, 5 blue beads and 3 green beads. How many beads in all?", "11",
     "numbers"),
    (EQUAL, "Ana has 5 red beads and 3 blue beads. How many beads does Ana have in all?", "11",
     "numbers"),
    (EQUAL, EQUAL + " To solve this, add up all the colours.", "11", "solution"),
    (EQUAL, "Here is another wording: Ana has 3 blue, 3 green and 5 red beads. How many has she?",
     "11", "remark"),
    (EQUAL, "How many beads?", "11", "length"),
    (EQUAL, "Ana's beads are of three colours: 5 are red, and 3 are blue, and 3 are green.", "11",
     "question"),
    ("What is 7 - 3?", "What do you get for 7 + 3?", "4", "meaning"),
    (r"What is $5 \cdot 3$?", r"What is the value of $5 + 3$?", "15", "LaTeX"),
]  # fmt: skip

UNSEEN = [  # numbers that trade places
    ("Ana has 3 apples and Ben has 5 pears. How many more pears than apples are there?",
     "There are 5 apples of Ana's, and Ben has 3 pears. How many more pears are there?", "2"),
    # another thing is asked for
    (CLIPS, "In April Nora sold 48 clips, and in May half that number. How many in "
     "May?", "72"),
    # a fact without a number is dropped
    ("A full tank of 40 liters loses 2 liters an hour. How many hours until it is empty?",
     "A tank holds 40 liters and loses 2 liters each hour. When, in hours, is it empty?", "20"),
    # one of two 'each' is lost
    (EGGS, "Each day a farmer gathers a dozen eggs. He eats 3 and the rest is sold for $2. How "
     "many dollars does this make in a week?", "126"),
    # another story around the same numbers
    (MONEY, "Kim pays $12 an hour for parking. Yesterday she walked 50 minutes. How much did the "
     "walk cost her?", "10"),
    # the relation between two people is turned round
    (AGE, "How old is Leo, who is 3 times as old as Mia, if in 5 years the sum of their ages will "
     "be 42?", "8"),
    # a number in a word that is a number only sometimes
    ("One of 6 boxes is empty. How many are full?", "Some of 6 boxes is empty. How many are full?",
     "5"),
]  # fmt: skip
