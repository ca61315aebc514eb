"""Write the bundled sentences whose language is to be named: `python -m scripts.write_languages FOLDER`.

Ten sentences in twelve languages, and in one that the instruction does not list, each with the numbers from 11 to 19:
these take the same form of the word beside them in all of the languages. The last three sentences are the test.
"""

import argparse
import json
import random
from collections.abc import Mapping
from pathlib import Path

SEED = 0
NUMBERS = range(11, 20)
NUM_TRAINED = 7
"""Of the ten sentences; the others are held out."""
TRAIN_NUMBERS, TEST_NUMBERS = 5, 3
"""How many numbers each sentence is taken with."""

SENTENCES: Mapping[str, tuple[str, ...]] = {
    "de": (
        "Die Besprechung beginnt in {n} Minuten.",
        "Wir brauchen {n} Stühle für das Fest morgen.",
        "Meine Schwester hat dieses Jahr {n} Bücher gelesen.",
        "Das Kind zählte {n} Vögel auf dem Dach.",
        "Ich warte hier schon seit {n} Tagen.",
        "Dieses Haus wurde vor {n} Jahren gebaut.",
        "Sie hat auf dem Markt {n} Äpfel gekauft.",
        "Im Klassenzimmer sitzen {n} Schüler.",
        "Der Bus hält unterwegs {n} Mal.",
        "Er schrieb letzten Winter {n} Briefe.",
    ),
    "el": (
        "Η συνάντηση αρχίζει σε {n} λεπτά.",
        "Χρειαζόμαστε {n} καρέκλες για τη γιορτή αύριο.",
        "Η αδελφή μου διάβασε {n} βιβλία φέτος.",
        "Το παιδί μέτρησε {n} πουλιά στη στέγη.",
        "Περιμένω εδώ {n} μέρες.",
        "Αυτό το σπίτι χτίστηκε πριν από {n} χρόνια.",
        "Αγόρασε {n} μήλα στην αγορά.",
        "Υπάρχουν {n} μαθητές στην τάξη.",
        "Το λεωφορείο σταματά {n} φορές στον δρόμο.",
        "Έγραψε {n} γράμματα τον περασμένο χειμώνα.",
    ),
    "en": (
        "The meeting begins in {n} minutes.",
        "We need {n} chairs for the party tomorrow.",
        "My sister has read {n} books this year.",
        "The child counted {n} birds on the roof.",
        "I have been waiting here for {n} days.",
        "This house was built {n} years ago.",
        "She bought {n} apples at the market.",
        "There are {n} students in the classroom.",
        "The bus stops {n} times on the way.",
        "He wrote {n} letters last winter.",
    ),
    "es": (
        "La reunión empieza en {n} minutos.",
        "Necesitamos {n} sillas para la fiesta de mañana.",
        "Mi hermana ha leído {n} libros este año.",
        "El niño contó {n} pájaros en el tejado.",
        "Llevo {n} días esperando aquí.",
        "Esta casa se construyó hace {n} años.",
        "Ella compró {n} manzanas en el mercado.",
        "Hay {n} alumnos en el aula.",
        "El autobús para {n} veces en el camino.",
        "Él escribió {n} cartas el invierno pasado.",
    ),
    "fr": (
        "La réunion commence dans {n} minutes.",
        "Il nous faut {n} chaises pour la fête de demain.",
        "Ma sœur a lu {n} livres cette année.",
        "L'enfant a compté {n} oiseaux sur le toit.",
        "J'attends ici depuis {n} jours.",
        "Cette maison a été construite il y a {n} ans.",
        "Elle a acheté {n} pommes au marché.",
        "Il y a {n} élèves dans la salle de classe.",
        "Le bus s'arrête {n} fois en chemin.",
        "Il a écrit {n} lettres l'hiver dernier.",
    ),
    "it": (
        "La riunione comincia tra {n} minuti.",
        "Ci servono {n} sedie per la festa di domani.",
        "Mia sorella ha letto {n} libri quest'anno.",
        "Il bambino ha contato {n} uccelli sul tetto.",
        "Aspetto qui da {n} giorni.",
        "Questa casa è stata costruita {n} anni fa.",
        "Lei ha comprato {n} mele al mercato.",
        "Ci sono {n} studenti nell'aula.",
        "L'autobus si ferma {n} volte lungo la strada.",
        "L'inverno scorso ha scritto {n} lettere.",
    ),
    "nl": (
        "De vergadering begint over {n} minuten.",
        "We hebben {n} stoelen nodig voor het feest van morgen.",
        "Mijn zus heeft dit jaar {n} boeken gelezen.",
        "Het kind telde {n} vogels op het dak.",
        "Ik wacht hier al {n} dagen.",
        "Dit huis werd {n} jaar geleden gebouwd.",
        "Ze kocht {n} appels op de markt.",
        "Er zitten {n} leerlingen in het lokaal.",
        "De bus stopt onderweg {n} keer.",
        "Hij schreef vorige winter {n} brieven.",
    ),
    "pt": (
        "A reunião começa em {n} minutos.",
        "Precisamos de {n} cadeiras para a festa de amanhã.",
        "A minha irmã leu {n} livros este ano.",
        "A criança contou {n} pássaros no telhado.",
        "Estou à espera aqui há {n} dias.",
        "Esta casa foi construída há {n} anos.",
        "Ela comprou {n} maçãs no mercado.",
        "Há {n} alunos na sala de aula.",
        "O autocarro para {n} vezes no caminho.",
        "Ele escreveu {n} cartas no inverno passado.",
    ),
    "ru": (
        "Встреча начнётся через {n} минут.",
        "Завтра на праздник нам нужно {n} стульев.",
        "Моя сестра прочитала в этом году {n} книг.",
        "Ребёнок насчитал на крыше {n} птиц.",
        "Я жду здесь уже {n} дней.",
        "Этот дом построили {n} лет назад.",
        "Она купила на рынке {n} яблок.",
        "В классе сидят {n} учеников.",
        "Автобус останавливается по дороге {n} раз.",
        "Прошлой зимой он написал {n} писем.",
    ),
    "tr": (
        "Toplantı {n} dakika sonra başlıyor.",
        "Yarınki parti için {n} sandalyeye ihtiyacımız var.",
        "Kız kardeşim bu yıl {n} kitap okudu.",
        "Çocuk çatıda {n} kuş saydı.",
        "{n} gündür burada bekliyorum.",
        "Bu ev {n} yıl önce yapıldı.",
        "O, pazardan {n} elma aldı.",
        "Sınıfta {n} öğrenci var.",
        "Otobüs yolda {n} kez duruyor.",
        "Geçen kış {n} mektup yazdı.",
    ),
    "vi": (
        "Cuộc họp bắt đầu sau {n} phút nữa.",
        "Chúng tôi cần {n} cái ghế cho bữa tiệc ngày mai.",
        "Chị tôi đã đọc {n} quyển sách trong năm nay.",
        "Đứa trẻ đếm được {n} con chim trên mái nhà.",
        "Tôi đã đợi ở đây {n} ngày rồi.",
        "Ngôi nhà này được xây cách đây {n} năm.",
        "Cô ấy đã mua {n} quả táo ở chợ.",
        "Có {n} học sinh trong lớp học.",
        "Xe buýt dừng {n} lần trên đường đi.",
        "Mùa đông năm ngoái anh ấy đã viết {n} lá thư.",
    ),
    "zh": (
        "会议在{n}分钟后开始。",
        "明天的聚会我们需要{n}把椅子。",
        "我姐姐今年读了{n}本书。",
        "孩子数了屋顶上的{n}只鸟。",
        "我已经在这里等了{n}天。",
        "这座房子是{n}年前建的。",
        "她在市场买了{n}个苹果。",
        "教室里有{n}个学生。",
        "公共汽车在路上停{n}次。",
        "他去年冬天写了{n}封信。",
    ),
    # Swedish, which the instruction does not list.
    "ot": (
        "Mötet börjar om {n} minuter.",
        "Vi behöver {n} stolar till festen i morgon.",
        "Min syster har läst {n} böcker i år.",
        "Barnet räknade {n} fåglar på taket.",
        "Jag har väntat här i {n} dagar.",
        "Det här huset byggdes för {n} år sedan.",
        "Hon köpte {n} äpplen på torget.",
        "Det finns {n} elever i klassrummet.",
        "Bussen stannar {n} gånger på vägen.",
        "Han skrev {n} brev förra vintern.",
    ),
}
"""By label; the sentence at one place says the same in each."""


def rows(*, held_out: bool) -> str:
    """One JSON object per line, the languages mixed: a sentence as the question, its label as the answer."""
    rng = random.Random(f"languages {SEED} {'test' if held_out else 'train'}")
    drawn = []
    for label, sentences in SENTENCES.items():
        some = sentences[NUM_TRAINED:] if held_out else sentences[:NUM_TRAINED]
        for sentence in some:
            for number in rng.sample(NUMBERS, TEST_NUMBERS if held_out else TRAIN_NUMBERS):
                drawn.append({"question": sentence.format(n=number), "answer": label})
    rng.shuffle(drawn)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, held_out in (("train", False), ("test", True)):
        path = folder / f"{name}.jsonl"
        path.write_text(rows(held_out=held_out), encoding="utf-8")
        print(f"{path.stat().st_size:,} bytes in {path}")


if __name__ == "__main__":
    main()
